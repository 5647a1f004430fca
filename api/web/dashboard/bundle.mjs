// The dashboard as one C file: node bundle.mjs FOLDER OUT.c [--sizes]. FOLDER holds node_modules.
//
// Scripts and styles get names made of what is in them, so that browsers may keep them for ever;
// the page that names them is asked for anew each time. Everything is packed once, here.

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const MAX_PACKED_BYTES = 300e3; // of all files: a dashboard opens on a slow line, too
const PAGE = "index.html";
const KINDS = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

function digest(bytes) {
  return createHash("sha256").update(bytes).digest("hex");
}

function hashedName(name, bytes) {
  const dot = name.lastIndexOf(".");
  return `${name.slice(0, dot)}-${digest(bytes).slice(0, 12)}${name.slice(dot)}`;
}

async function bundle(sources, folder) {
  const require = createRequire(join(resolve(folder), "package.json"));
  const esbuild = require("esbuild");
  const common = {
    bundle: true, write: false, minify: true, legalComments: "none", charset: "utf8",
    target: ["chrome111", "firefox113", "safari16.4"], logLevel: "warning",
    nodePaths: [join(resolve(folder), "node_modules")],
  };
  // Its licence asks for its text wherever it goes.
  const licence = readFileSync(join(dirname(require.resolve("uplot/package.json")), "LICENSE"),
                               "utf8");
  const banner = `/*! uPlot: ${licence.replaceAll("*/", "")} */`;
  const script = await esbuild.build({ ...common, entryPoints: [join(sources, "main.js")],
                                       format: "esm", banner: { js: banner } });
  const style = await esbuild.build({ ...common, entryPoints: [join(sources, "main.css")] });
  return [["app.js", script.outputFiles[0].contents], ["app.css", style.outputFiles[0].contents],
          ["icon.svg", readFileSync(join(sources, "icon.svg"))]];
}

function cBytes(bytes) {
  const rows = [];
  for (let i = 0; i < bytes.length; i += 16) {
    rows.push([...bytes.subarray(i, i + 16)].join(","));
  }
  return rows.join(",\n");
}

// CONTENTS: [name, bytes], the page first.
function cFile(contents) {
  const text = ['#include "web/dashboard/dashboard_files.h"'];
  const rows = contents.map(([name, bytes], i) => {
    const packed = gzipSync(bytes, { level: 9 });
    const kind = KINDS[name.slice(name.lastIndexOf("."))];
    text.push(`static const unsigned char file_${i}[] = {\n${cBytes(packed)}};`);
    return `    {"${name}", "${kind}", "${digest(bytes).slice(0, 32)}", file_${i}, ` +
           `sizeof(file_${i}), ${bytes.length}},`;
  });
  text.push("const struct dashboard_file dashboard_files[] = {", ...rows, "};",
            `const size_t dashboard_n_files = ${rows.length};`,
            'const char *const dashboard_absence = "";', "");
  return text.join("\n");
}

async function main([folder, out, sizes]) {
  const sources = join(dirname(fileURLToPath(import.meta.url)), "src");
  const parts = await bundle(sources, folder);
  let page = readFileSync(join(sources, PAGE), "utf8");
  const contents = parts.map(([name, bytes]) => {
    const hashed = hashedName(name, bytes);
    page = page.replaceAll(`@${name}@`, `/assets/${hashed}`);
    return [hashed, Buffer.from(bytes)];
  });
  contents.unshift([PAGE, Buffer.from(page)]);
  const packed = contents.map(([, bytes]) => gzipSync(bytes, { level: 9 }).length);
  const total = packed.reduce((a, b) => a + b, 0);
  if (total > MAX_PACKED_BYTES) {
    throw new Error(`the dashboard has ${total} bytes in gzip, and ${MAX_PACKED_BYTES} at most`);
  }
  writeFileSync(out, cFile(contents));
  if (sizes === "--sizes") {
    contents.forEach(([name, bytes], i) => console.log(`${name} ${bytes.length} ${packed[i]}`));
    console.log(`total ${total}`);
  }
}

await main(process.argv.slice(2));
