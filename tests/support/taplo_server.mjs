// Opens a TOML file in Taplo's language server, as an editor does, and prints what it answers.
//
//     node taplo_server.mjs FILE SCHEMA_URL SCHEMA_FILE LINE:CHARACTER...
//
// The server asks for the schema at the address that the file's modeline names; SCHEMA_FILE is what
// it gets there. stdout: {completions: [[label, ...] for each position], diagnostics: [{line,
// message}]}. NODE_PATH names the folder that has @taplo/lsp.

import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const [file, schemaUrl, schemaFile, ...positions] = process.argv.slice(2);
const { TaploLsp } = createRequire(import.meta.url)("@taplo/lsp");

globalThis.fetch = async (request) => {
  const url = request.url ?? String(request);
  const known = url === schemaUrl;
  const body = known ? fs.readFileSync(schemaFile) : "";
  const response = new Response(body, { status: known ? 200 : 404 });
  return Object.defineProperty(response, "url", { value: url });
};

const environment = {
  now: () => new Date(),
  envVar: (name) => process.env[name] ?? "",
  envVars: () => Object.entries(process.env),
  stdErrAtty: () => false,
  stdin: process.stdin,
  stdout: process.stderr,
  stderr: process.stderr,
  glob: () => [],
  readFile: (name) => fs.promises.readFile(name),
  writeFile: (name, bytes) => fs.promises.writeFile(name, bytes),
  urlToFilePath: (url) => (url.startsWith("file:") ? fileURLToPath(url) : url),
  isAbsolute: (name) => path.isAbsolute(name),
  cwd: () => process.cwd(),
  findConfigFile: () => undefined,
};

const answers = new Map();
let diagnostics = [];
let reports = 0;
let judge = () => {};

function onMessage(message) {
  if (message.method && message.id !== undefined) {
    const items = message.params?.items ?? [];
    server.send({ jsonrpc: "2.0", id: message.id, result: items.map(() => ({})) });
  } else if (message.method === "textDocument/publishDiagnostics") {
    diagnostics = message.params.diagnostics;
    reports += 1;
    if (reports === 3) judge(); // nothing, the syntax, then what the schema says
  } else if (!message.method) {
    answers.get(message.id)(message);
  }
}

const server = await TaploLsp.initialize(environment, { onMessage });
const notify = (method, params) => server.send({ jsonrpc: "2.0", method, params });
const ask = (method, params) =>
  new Promise((resolve) => {
    const id = answers.size + 1;
    answers.set(id, resolve);
    server.send({ jsonrpc: "2.0", id, method, params });
  });

const uri = pathToFileURL(path.resolve(file)).href;
const rootUri = path.dirname(uri);
await ask("initialize", {
  processId: null,
  rootUri,
  capabilities: {},
  workspaceFolders: [{ uri: rootUri, name: "project" }],
});
notify("initialized", {});
const judged = new Promise((resolve) => (judge = resolve));
const text = fs.readFileSync(file, "utf-8");
notify("textDocument/didOpen", { textDocument: { uri, languageId: "toml", version: 1, text } });
await judged;

const completions = [];
for (const position of positions) {
  const [line, character] = position.split(":").map(Number);
  const parameters = { textDocument: { uri }, position: { line, character } };
  const { result } = await ask("textDocument/completion", parameters);
  const items = Array.isArray(result) ? result : (result?.items ?? []);
  completions.push(items.map((item) => item.label));
}
const found = diagnostics.map((one) => ({ line: one.range.start.line, message: one.message }));
console.log(JSON.stringify({ completions, diagnostics: found }));
process.exit(0);
