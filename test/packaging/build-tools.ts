// The first step of `npm run check:packaging`: what takes longer to build than a test may take.
import { helm, kubeconform } from "./support/tools.ts";

for (const tool of [helm, kubeconform]) process.stdout.write(`${tool()}\n`);
