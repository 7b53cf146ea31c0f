// server.mjs: a hearth server for the tests, with the default model.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const program = process.env.HEARTH ?? fileURLToPath(new URL("../../build/hearth", import.meta.url));

export async function start(...options) {
  const child = spawn(program, ["serve", "--port", "0", "--quiet", ...options], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await Promise.race([
    once(createInterface(child.stdout), "line"),
    once(child, "exit").then(() => { throw new Error("hearth serve ended at once"); }),
  ]);
  const address = /http:\S+?(?=\/ )/.exec(line)[0];
  return {
    address,
    port: new URL(address).port,
    async stop(signal = "SIGTERM") {
      child.kill(signal);
      if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
      return child.exitCode;
    },
  };
}
