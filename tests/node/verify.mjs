// Verifies webhooks with a library: node verify.mjs LIBRARY <REQUESTS
// REQUESTS is a JSON array of {secret, headers, body}. Prints a JSON array: the verified event's id, or null.
import { text } from "node:stream/consumers";
import { load } from "./packages.mjs";

const { Webhook } = load(process.argv[2]);

const verify = ({ secret, headers, body }) => {
  try {
    return new Webhook(secret).verify(body, headers).id;
  } catch (error) {
    if (error.constructor.name === "WebhookVerificationError") return null;
    throw error;
  }
};

console.log(JSON.stringify(JSON.parse(await text(process.stdin)).map(verify)));
