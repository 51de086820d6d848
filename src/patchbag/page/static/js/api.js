// The HTTP API. Every failure is an ApiError with the server's sentence.

export class ApiError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

function address(path, parameters) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters || {})) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") query.append(key, String(one));
    }
  }
  const text = query.toString();
  return `/api${path}${text ? `?${text}` : ""}`;
}

/** An answer that early.js has asked for, once. */
function takeEarly(url) {
  const answer = window.early?.get(url) ?? null;
  window.early?.delete(url);
  return answer;
}

async function send(method, url, { body = undefined, type = null, signal = undefined } = {}) {
  let response = method === "GET" ? await takeEarly(url) : null;
  try {
    response ??= await fetch(url, {
      method,
      body,
      signal,
      keepalive: typeof body === "string" && body.length < 60000, // an answer outlives the tab
      headers: type ? { "Content-Type": type } : {},
      credentials: "same-origin",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer. Is it still running?");
  }
  const text = await response.text();
  let data = null;
  try {
    data = text ? JSON.parse(text) : null;
  } catch {
    data = null;
  }
  if (response.ok) return data;
  const detail = data && typeof data.detail === "string" ? data.detail : `${method} ${url} failed (${response.status})`;
  throw new ApiError(response.status, detail);
}

const json = (method) => (path, data = {}, options = {}) =>
  send(method, address(path, options.parameters), { body: JSON.stringify(data), type: "application/json", ...options });

export const get = (path, parameters, options = {}) => send("GET", address(path, parameters), options);
export const post = json("POST");
export const put = json("PUT");
export const patch = json("PATCH");
export const remove = (path) => json("DELETE")(path);
export const upload = (path, blob, parameters) =>
  send("POST", address(path, parameters), { body: blob, type: blob.type || "application/octet-stream" });

const version = (image) => (image.v ? `v=${encodeURIComponent(image.v)}` : "");
export const thumb = (image) => `/api/images/${image.id}/thumb${image.v ? "?" : ""}${version(image)}`;
export const picture = (image, side) => `/api/images/${image.id}/picture?side=${side}&${version(image)}`;

/** Live events; `handle(type, data)`, and `lost(true | false)` when the connection goes and comes back. */
export function listen(handle, lost) {
  const source = new EventSource("/api/events");
  for (const type of ["state", "progress", "labels", "classes", "images", "model", "notice"]) {
    source.addEventListener(type, (event) => handle(type, JSON.parse(event.data)));
  }
  source.onopen = () => lost(false);
  source.onerror = () => lost(true);
  window.addEventListener("pagehide", () => source.close());
  return source;
}
