// The tour's main act: an automation of a conversation runs, and the conversation knows of it.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { argv: string[] };

type Turn = components["schemas"]["TurnOut"];
type Problem = components["schemas"]["Problem400"];

const [baseUrl, token] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });

function found<T>(answer: { data?: T; error?: unknown }): T {
  if (answer.data === undefined) throw new Error(JSON.stringify(answer.error));
  return answer.data;
}

const agent = found(await client.POST("/api/agents/", { body: { name: "helper", model: "offline" } }));
const session = found(await client.POST("/api/sessions/", { body: { agent: agent.name, title: "Tour" } }));
const path = { session_id: session.id };

export async function wrong(): Promise<void> {
  // @ts-expect-error a title is a text
  await client.POST("/api/sessions/", { body: { agent: agent.name, title: 7 } });
  // @ts-expect-error there is no such address
  await client.GET("/api/nothing/");
}

async function say(content: string): Promise<Turn> {
  const header = { Prefer: "wait=50" };
  return found(
    await client.POST("/api/sessions/{session_id}/messages/", { params: { path, header }, body: { content } }),
  );
}

await say("My favourite colour is blue.");
const at = new Date(Date.now() + 2000).toISOString();
const automation = found(
  await client.POST("/api/sessions/{session_id}/automations/", {
    params: { path },
    body: { message: "What is my favourite colour?", schedule: { kind: "at", at } },
  }),
);

async function endedRun(): Promise<components["schemas"]["RunOut"]> {
  for (const begun = Date.now(); Date.now() - begun < 40_000; ) {
    const params = { path: { job_id: automation.id } };
    const runs = found(await client.GET("/api/automations/{job_id}/runs/", { params }));
    const ended = runs.results.find((run) => run.state === "succeeded" || run.state === "failed");
    if (ended) return ended;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  throw new Error("no run ended");
}

const run = await endedRun();
const quote = await say("What did the automation say last? Quote it.");
const history = found(await client.GET("/api/sessions/{session_id}/messages/", { params: { path } }));
const refused = await client.POST("/api/agents/", { body: { name: "other", timezone: "Mars/Olympus" } });
const problem = refused.error as Problem;
console.log(
  JSON.stringify({
    state: run.state,
    reply: quote.reply,
    roles: history.results.map((message) => message.role),
    problem: { status: problem.status, code: problem.code, type: problem.type },
  }),
);
