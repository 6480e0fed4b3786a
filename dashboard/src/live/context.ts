import { createContext } from "preact";
import { useContext, useEffect, useReducer } from "preact/hooks";
import type { BoardAction, Who } from "../../../src/contract/board.ts";
import type { BoardState } from "../logic/board-state.ts";
import type { Intent } from "../logic/describe-action.ts";
import type { LiveBoard } from "./live-board.ts";

export interface BoardContext {
  readonly live: LiveBoard;
  readonly state: BoardState;
  readonly who: Who;
  /** Asks for a confirmation, and then does it. */
  readonly intend: (intent: Intent) => void;
}

const Context = createContext<BoardContext | null>(null);
export const BoardProvider = Context.Provider;

export function useBoard(): BoardContext {
  const board = useContext(Context);
  if (board === null) throw new Error("a view stands outside of the board");
  return board;
}

/** A button for what the role may not do isn't there. */
export const useMay = (): ((action: BoardAction) => boolean) => {
  const { who } = useBoard();
  return (action) => who.may.includes(action);
};

/** Draws again with each message, and with each second while none comes. */
export function useUpdates(live: LiveBoard | null): void {
  const [, again] = useReducer((count: number) => count + 1, 0);
  useEffect(() => live?.subscribe(() => again(null)), [live]);
}
