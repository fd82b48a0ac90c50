// Receives webhooks from dockbell and keeps a copy of their records. npm install standardwebhooks
import { createServer } from "node:http";
import { buffer } from "node:stream/consumers";
import { Webhook } from "standardwebhooks";

const largest = 1_000_000; // bytes; far more than `max_event_size` of the sink
const webhook = new Webhook(process.env.ERP_WEBHOOK_SECRET);
const token = process.env.DOCKBELL_WEB_TOKEN;
const seen = new Set(); // ids, the latest 100,000
const copies = new Map(); // by partitionkey: { revision, record, isStale }

function take({ id, type, partitionkey, data, dataref }) {
  if (seen.has(id)) return;
  if (type === "dockbell.feed.gap" && data.reason === "store_lost") {
    for (const copy of copies.values()) copy.revision = -1; // revisions start again: read /state/… as well
  } else if ("revision" in data && type !== "dockbell.test" && !("name" in data)) {
    const known = copies.get(partitionkey);
    if (data.revision <= (known?.revision ?? -1)) return; // late: something newer is known
    const isStale = data.omitted?.includes("after") ?? false; // too large, or the sink is not `full`: what it was stays
    copies.set(partitionkey, { revision: data.revision, record: isStale ? known?.record : data.after, isStale });
    if (isStale) read(partitionkey, dataref).catch((error) => console.error(partitionkey, error.message));
  }
  console.log(type, partitionkey, data.after?.status ?? "");
  seen.add(id);
  if (seen.size > 100_000) seen.delete(seen.values().next().value);
}

async function read(partitionkey, dataref) {
  if (!dataref) throw new Error("is not told in full; read /state/… of dockbell");
  const answer = await fetch(dataref, { headers: token ? { authorization: `Bearer ${token}` } : {} });
  if (answer.status !== 200 && answer.status !== 410) throw new Error(`HTTP ${answer.status}`);
  const { revision, record } = await answer.json(); // of 410, Gone, without a record
  if (revision < copies.get(partitionkey).revision) return; // something newer came meanwhile
  copies.set(partitionkey, { revision, record: record ?? null, isStale: false });
  console.log("read", partitionkey, record?.status ?? "");
}

createServer(async (request, response) => {
  try {
    if (!(Number(request.headers["content-length"]) <= largest)) return response.writeHead(413).end();
    const body = (await buffer(request)).toString(); // as it came, before anything parses it
    take(webhook.verify(body, request.headers));
    response.writeHead(204).end();
  } catch (error) {
    response.writeHead(error.constructor.name === "WebhookVerificationError" ? 401 : 500).end();
  }
}).listen(Number(process.env.PORT ?? 8000), "127.0.0.1");
