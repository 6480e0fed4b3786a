/** How often a test repeats a fault: a few times in everyday runs, as often as was promised in `npm run soak`. */
export const rounds = (everyday: number, soak: number): number => (process.env["SOAK"] === "1" ? soak : everyday);
