// Requests to the server that the page came from, and nowhere else.

import { say } from "../views/say.js";

const STORED = "multihead-key";
let key = window.sessionStorage.getItem(STORED) ?? "";

export class ApiError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

export function useKey(given) {
  key = given;
  window.sessionStorage.setItem(STORED, given);
}

async function send(path, body, signal) {
  const headers = { ...(key ? { Authorization: `Bearer ${key}` } : {}), ...(body ? { "Content-Type": "application/json" } : {}) };
  let reply;
  try {
    reply = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("offline", say("The server does not answer. Is it still running?"));
  }
  if (reply.ok) return reply;
  const found = await reply.json().catch(() => ({}));
  const { code = "unknown", message = say("The server answered with status {}.", reply.status) } = found.error ?? {};
  throw new ApiError(code, message);
}

export const getJson = async (path) => (await send(path)).json();
export const postJson = async (path, body, signal) => (await send(path, body, signal)).json();

// Server-sent events of a POST, one object each.
export async function* postStream(path, body, signal) {
  const reply = await send(path, body, signal);
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (!part.startsWith("data: ") || part === "data: [DONE]") continue;
      const event = JSON.parse(part.slice(6));
      if (event.error) throw new ApiError(event.error.code, event.error.message);
      yield event;
    }
  }
}
