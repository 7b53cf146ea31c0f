// server.mjs: a hearth server for the tests, with the default model.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const program = process.env.HEARTH ?? fileURLToPath(new URL("../../build/hearth", import.meta.url));

// Conversations of the tests stay among themselves, and are gone afterwards.
const kept = mkdtempSync(join(tmpdir(), "hearth-clients-"));
process.on("exit", () => rmSync(kept, { recursive: true, force: true }));
let stores = 0;

// A server that goes on with what another kept is given its store.
export async function start(...options) {
  const given = options.indexOf("--store-dir"), store = given >= 0 ? options[given + 1] : join(kept, String(stores++));
  if (given < 0) options.push("--store-dir", store);
  const child = spawn(program, ["serve", "--port", "0", "--quiet", ...options], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await Promise.race([
    once(createInterface(child.stdout), "line"),
    once(child, "exit").then(() => { throw new Error("hearth serve ended at once"); }),
  ]);
  const address = /http:\S+?(?=\/ )/.exec(line)[0];
  return {
    address,
    store,
    port: new URL(address).port,
    async stop(signal = "SIGTERM") {
      child.kill(signal);
      if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
      return child.exitCode;
    },
  };
}
