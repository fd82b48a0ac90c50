// Loads a package from DOCKBELL_NODE_MODULES; without it, from wherever node looks.
import { createRequire } from "node:module";
import { join } from "node:path";

const modules = process.env.DOCKBELL_NODE_MODULES;

export const load = createRequire(modules ? join(modules, "index.js") : import.meta.url);
