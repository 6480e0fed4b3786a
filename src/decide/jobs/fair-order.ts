/**
 * Places in a lane, so that keys take turns: a key's next job stands one step behind its last one, or at the lane's front if it
 * has none waiting there. A backlog of one key then delays another key's job by at most one turn of each key (by weight).
 *
 * `front`: the place of the job that was claimed last. `last`: the place that the key was given last; undefined when it has none.
 */
export const placeInLane = (front: number, last: number | undefined, weight: number): number =>
  Math.max(front, last ?? Number.NEGATIVE_INFINITY) + 1 / weight;
