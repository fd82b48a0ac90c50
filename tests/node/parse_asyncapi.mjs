// Checks an AsyncAPI document: node parse_asyncapi.mjs FILE
// Prints one line a problem, worst first, then what there is. Exits with 0 when there is no error, 1 when there is one.
import { readFile } from "node:fs/promises";
import { load } from "./packages.mjs";

const { Parser } = load("@asyncapi/parser");
const SEVERITIES = ["error", "warning", "information", "hint"];

const [file] = process.argv.slice(2);
if (!file) {
  console.error("usage: node parse_asyncapi.mjs FILE");
  process.exit(2);
}
const { document, diagnostics } = await new Parser().parse(await readFile(file, "utf8"));
const problems = [...diagnostics].sort((one, other) => one.severity - other.severity);
for (const { severity, code, path, message } of problems) {
  console.log(`${SEVERITIES[severity]}: ${code} at /${path.join("/")}: ${message}`);
}
if (!document || problems.some(({ severity }) => severity === 0)) process.exit(1);
const count = (name) => `${document[name]().all().length} ${name}`;
console.log(`AsyncAPI ${document.version()}: ${["servers", "channels", "operations", "messages"].map(count).join(", ")}`);
