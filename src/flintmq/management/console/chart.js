// Charts over time: live, with a stretch of time to zoom into. Drawn by uPlot on a canvas.

import uPlot from "./vendor/uplot.js";
import { useEffect, useRef } from "./vendor/preact-hooks.js";
import { html } from "./parts.js";

const PADDING_RIGHT = 10;
// Half of the widest text on the axis of times.
const HALF_TEXT = 27;

/** A variable of the style sheet as the colour that it is now, for the canvas. */
function color(name, share = 100) {
  const probe = document.createElement("i");
  probe.style.color = `color-mix(in srgb, var(${name}) ${share}%, transparent)`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function optionsOf({ series, format, width, height, sync }) {
  const axis = {
    stroke: color("--quiet"),
    font: "11px system-ui, sans-serif",
    grid: { stroke: color("--line"), width: 1 },
    ticks: { show: false },
  };
  return {
    width,
    height,
    padding: [10, PADDING_RIGHT, 0, 0],
    legend: { show: false },
    cursor: { points: { size: 7 }, drag: { x: true, y: false }, sync: sync ? { key: sync } : undefined },
    scales: { y: { range: (_, least, most) => [0, Math.max(1, (most || 0) * 1.15)] } },
    axes: [
      { ...axis, grid: { show: false }, space: 80, size: 30, values: (self, times) => fitting(self, times, clockTexts(times)) },
      { ...axis, size: 58, values: (_, values) => values.map(format) },
    ],
    series: [
      {},
      ...series.map((each) => ({
        label: each.name,
        stroke: color(each.color),
        width: 1.75,
        fill: each.fill ? color(each.color, 11) : undefined,
        points: { show: false },
      })),
    ],
  };
}

/** Times of day, with seconds where ticks are less than a minute apart. */
function clockTexts(times) {
  const isFine = times.length < 2 || times[1] - times[0] < 60;
  return times.map((time) => new Date(time * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(isFine ? { second: "2-digit" } : {}) }));
}


/** The texts but for those that the right edge of the chart would cut. */
function fitting(self, times, texts) {
  const end = self.bbox.width / devicePixelRatio + PADDING_RIGHT - HALF_TEXT;
  return texts.map((text, place) => (self.valToPos(times[place], "x") > end ? "" : text));
}

/** `times` in seconds; `series` of name, color (a variable of the style sheet), values. */
export function Chart({ label, times, series, format, height = 200, sync }) {
  const place = useRef(null);
  const legend = useRef(null);
  const plot = useRef(null);
  const zoomed = useRef(false);
  const latest = useRef(null);
  latest.current = { times, series, format };

  const tell = (index) => {
    const { times: when, series: drawn, format: shown } = latest.current;
    const at = index ?? when.length - 1;
    drawn.forEach((each, number) => {
      const spot = legend.current?.children[number]?.lastElementChild;
      if (spot) spot.textContent = at >= 0 && each.values[at] !== undefined && each.values[at] !== null ? shown(each.values[at]) : "–";
    });
  };

  useEffect(() => {
    const make = () => {
      // The page may have been left since the colours changed.
      if (!place.current) return;
      plot.current?.destroy();
      zoomed.current = false;
      const now = latest.current;
      const options = optionsOf({ ...now, width: place.current.clientWidth || 300, height, sync });
      options.hooks = {
        setCursor: [(self) => tell(self.cursor.idx)],
        setSelect: [(self) => {
          if (self.select.width > 2) zoomed.current = true;
        }],
      };
      plot.current = new uPlot(options, [now.times, ...now.series.map((each) => each.values)], place.current);
      plot.current.over.addEventListener("dblclick", () => {
        zoomed.current = false;
      });
    };
    make();
    const watching = new ResizeObserver(() => {
      const width = place.current?.clientWidth;
      if (width && plot.current && width !== plot.current.width) plot.current.setSize({ width, height });
    });
    if (place.current) watching.observe(place.current);
    addEventListener("themechange", make);
    return () => {
      removeEventListener("themechange", make);
      watching.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [series.map((each) => each.name).join(), height]);

  useEffect(() => {
    plot.current?.setData([times, ...series.map((each) => each.values)], !zoomed.current);
    tell(plot.current?.cursor.idx);
  });

  return html`<figure class="chart">
    <figcaption class="legend" ref=${legend}>
      ${series.map((each) => html`<span class="legend-item" key=${each.name}><i class=${`swatch swatch${each.color.slice(1)}`} />${each.name} <b class="num">–</b></span>`)}
    </figcaption>
    <div ref=${place} class="chart-place" role="img" aria-label=${`${label}: ${series.map((each) => `${each.name} ${format(each.values.at(-1))}`).join(", ")}`} />
  </figure>`;
}

export const Waiting = () => html`<p class="quiet waiting">The first samples come in some seconds.</p>`;

/** Rates between samples of a counter, newest first as the API has them. */
export function ratesOf(samples) {
  const rows = [...(samples || [])].reverse();
  const found = [];
  for (let place = 1; place < rows.length; place += 1) {
    const seconds = (rows[place].timestamp - rows[place - 1].timestamp) / 1000;
    found.push(seconds > 0 ? Math.max(0, (rows[place].sample - rows[place - 1].sample) / seconds) : null);
  }
  return found;
}

export const timesOf = (samples) => [...(samples || [])].reverse().map((row) => row.timestamp / 1000);
export const valuesOf = (samples) => [...(samples || [])].reverse().map((row) => row.sample);
