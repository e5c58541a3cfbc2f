// The HTTP API as the console uses it: one session, JSON in and out, and polling that stops in a hidden tab.

import { useEffect, useRef, useState } from "./vendor/preact-hooks.js";

const MARK = "flintmq.session";
let csrf = "";
let onSignedOut = () => {};

export class ApiError extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

export function path(...segments) {
  return "/api/" + segments.map((segment) => encodeURIComponent(segment)).join("/");
}

export function query(values) {
  const pairs = Object.entries(values).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  return pairs.length ? "?" + new URLSearchParams(pairs) : "";
}

export async function request(method, url, body, signal) {
  const headers = { "x-flintmq-console": "1" };
  if (method !== "GET") headers["x-csrf-token"] = csrf;
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(url, {
      method,
      headers,
      signal,
      credentials: "same-origin",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The broker does not answer.");
  }
  const text = await response.text();
  if (!response.ok) {
    if (response.status === 401 && url !== "/api/session") await checkSession();
    throw new ApiError(response.status, reasonOf(text) || `${response.status} ${response.statusText}`);
  }
  // Whoever shows something asks again at once.
  if (method !== "GET") dispatchEvent(new Event("brokerchange"));
  if (!text) return null;
  return (response.headers.get("content-type") || "").includes("json") ? JSON.parse(text) : text;
}

function reasonOf(text) {
  try {
    const { reason, error } = JSON.parse(text);
    return typeof reason === "string" ? reason : error;
  } catch {
    return text.slice(0, 300);
  }
}

export const get = (url, signal) => request("GET", url, undefined, signal);

// While what a page shows is being deleted, the page does not ask for it any more.
let leaving = false;
// At most so long, should no other page come; polls look so often whether it has.
const LEAVING_MS = 2000;
const LOOK_MS = 50;

/** Another page is shown. */
export function arrived() {
  leaving = false;
}

/** Deletes what the page shows, and goes to another page. */
export async function requestAndLeave(method, url, body, where) {
  leaving = true;
  dispatchEvent(new Event("brokerleave"));
  try {
    await request(method, url, body);
    location.hash = where;
    setTimeout(arrived, LEAVING_MS);
  } catch (error) {
    leaving = false;
    throw error;
  }
}

// Sessions

export function watchSession(listener) {
  onSignedOut = listener;
}

function signedOut() {
  csrf = "";
  cache.clear();
  localStorage.removeItem(MARK);
  onSignedOut();
}

/** Signs out where the session is over. 401 is the answer to a user without the tag or the permission, too. */
async function checkSession() {
  try {
    keep(await get("/api/session"));
  } catch (error) {
    if (error.status === 401) signedOut();
  }
}

/** The session of an earlier visit, or null. Nobody is asked where there was none. */
export async function currentSession() {
  if (!localStorage.getItem(MARK)) return null;
  try {
    return keep(await get("/api/session"));
  } catch (error) {
    if (error.status === 0) throw error;
    localStorage.removeItem(MARK);
    return null;
  }
}

export async function signIn(username, password) {
  return keep(await request("POST", "/api/session", { username, password }));
}

export async function signOut() {
  leaving = true;
  dispatchEvent(new Event("brokerleave"));
  try {
    await request("DELETE", "/api/session");
  } finally {
    signedOut();
    setTimeout(arrived, LEAVING_MS);
  }
}

function keep(session) {
  csrf = session.csrf_token;
  localStorage.setItem(MARK, "1");
  return session;
}

// Polling

const cache = new Map();
const CACHED_MAX = 200;

/** What a URL answers, asked for again every few seconds while the tab can be seen, and after each change. */
export function usePoll(url, every = 5000) {
  const [, show] = useState(0);
  const state = useRef({ url: null, data: undefined, error: null });
  if (state.current.url !== url) state.current = { url, data: cache.get(url), error: null };
  useEffect(() => {
    if (!url) return undefined;
    let timer = 0;
    let stopped = false;
    let control = null;
    const ask = async () => {
      clearTimeout(timer);
      control?.abort();
      if (leaving) {
        timer = setTimeout(ask, LOOK_MS);
        return;
      }
      const mine = new AbortController();
      control = mine;
      try {
        const data = await get(url, mine.signal);
        if (stopped || control !== mine) return;
        if (cache.size > CACHED_MAX) cache.clear();
        cache.set(url, data);
        state.current = { url, data, error: null };
      } catch (error) {
        if (stopped || error.name === "AbortError") return;
        state.current = { ...state.current, error };
      }
      show((number) => number + 1);
      if (every && !document.hidden) timer = setTimeout(ask, every);
    };
    const turned = () => {
      if (document.hidden) clearTimeout(timer);
      else ask();
    };
    document.addEventListener("visibilitychange", turned);
    addEventListener("brokerchange", turned);
    addEventListener("brokerleave", turned);
    if (!document.hidden) ask();
    return () => {
      stopped = true;
      control?.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", turned);
      removeEventListener("brokerchange", turned);
      removeEventListener("brokerleave", turned);
    };
  }, [url, every]);
  return { data: state.current.data, error: state.current.error };
}

// What this broker can do: the paths of its OpenAPI document.

let paths = null;

export async function learnPaths() {
  paths ??= new Set(Object.keys((await get("/api/openapi.json")).paths));
  return paths;
}

export const can = (wanted) => paths?.has(wanted) ?? false;
