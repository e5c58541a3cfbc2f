// Numbers, sizes and times as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function count(value) {
  if (value === undefined || value === null || Number.isNaN(value)) return "–";
  return whole.format(value);
}

/** 1,234,567 as 1.23 M: for places where the whole number does not fit. */
export function brief(value) {
  if (value === undefined || value === null) return "–";
  const size = Math.abs(value);
  if (size < 10_000) return size && size < 10 && !Number.isInteger(value) ? value.toFixed(1) : whole.format(value);
  for (const [unit, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) {
      const scaled = value / unit;
      return (Math.abs(scaled) >= 100 ? scaled.toFixed(0) : scaled.toPrecision(3)) + " " + name;
    }
  }
  return String(value);
}

export function rate(value) {
  if (value === undefined || value === null || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size < 0.005) return "0/s";
  if (size < 1) return `${Number(value.toFixed(2))}/s`;
  if (size < 10) return value.toFixed(1) + "/s";
  return brief(Math.round(value)) + "/s";
}

/** The rate in the details of a count; undefined until there are two samples between which it was counted. */
export const knownRate = (details) => (details?.samples?.length > 1 ? details.rate : undefined);

export function bytes(value) {
  if (value === undefined || value === null) return "–";
  let scaled = value;
  let unit = 0;
  while (Math.abs(scaled) >= 1024 && unit < SIZES.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  return (unit && Math.abs(scaled) < 100 ? scaled.toPrecision(3) : Math.round(scaled)) + " " + SIZES[unit];
}

export function duration(ms) {
  if (ms === undefined || ms === null) return "–";
  const s = ms / 1000;
  if (s < 1) return `${Math.round(ms)} ms`;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

export function moment(ms) {
  if (!ms) return "–";
  return new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

/** The time of day, as charts have it. */
export const clock = (when, parts = { hour: "2-digit", minute: "2-digit", second: "2-digit" }) => when.toLocaleTimeString("en-GB", parts);

/** A moment of today as a time, an earlier one with its date. */
export function since(ms) {
  const when = new Date(ms);
  const time = clock(when, { hour: "2-digit", minute: "2-digit" });
  if (when.toDateString() === new Date().toDateString()) return time;
  return `${when.toLocaleDateString("en-GB", { day: "numeric", month: "short" })}, ${time}`;
}

export function dig(row, column) {
  let found = row;
  for (const name of column.split(".")) {
    if (found === undefined || found === null) return undefined;
    found = found[name];
  }
  return found;
}
