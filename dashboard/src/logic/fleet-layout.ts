/** Measures of the fleet's rows: how high one is follows from its cards and the width alone, so what is not seen need not be drawn. */
const TILE_HEIGHT = 96;
const TILE_WIDTH_MIN = 150;
const GAP = 6;
const PADDING = 16;
/** Below it a node stands above its cards. */
const NARROW = 720;
const NAME_WIDTH = 220;
const NAME_HEIGHT_NARROW = 62;
const NO_CARDS_HEIGHT = 36;
const ROW_HEIGHT_MIN = 84;

export function tilesPerLine(width: number): number {
  const room = width < NARROW ? width : width - NAME_WIDTH;
  return Math.max(2, Math.min(8, Math.floor((room + GAP) / (TILE_WIDTH_MIN + GAP))));
}

export function nodeHeight(tiles: number, width: number): number {
  const lines = Math.max(tiles === 0 ? 0 : 1, Math.ceil(tiles / tilesPerLine(width)));
  const cards = lines === 0 ? 0 : lines * TILE_HEIGHT + (lines - 1) * GAP;
  if (width < NARROW) return NAME_HEIGHT_NARROW + (lines === 0 ? NO_CARDS_HEIGHT : cards) + PADDING;
  return Math.max(ROW_HEIGHT_MIN, cards + PADDING);
}
