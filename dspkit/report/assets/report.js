// Draws the charts of a report. Inlined once, after plotly.js; the figures lie in <script type="application/json">.
"use strict";
(() => {
  const plots = [...document.querySelectorAll(".plot")];
  const fixed = new Map(); // plots that keep a width of their own

  // A legend beside a chart leaves no room for the chart on a phone: put it below.
  const narrow = (data, layout, width) => {
    if (width >= 520) return layout;
    const named = data.filter((trace) => trace.showlegend !== false).length > 1;
    const lines = (layout.showlegend ?? named) ? 70 : 0;
    const margin = layout.margin || {};
    return {
      ...layout,
      height: (layout.height || 420) + lines,
      margin: { ...margin, l: Math.min(margin.l ?? 55, 55), t: Math.min(margin.t ?? 55, 55), r: 10, b: 45 + lines },
      legend: { ...layout.legend, orientation: "h", x: 0, xanchor: "left", y: 0, yref: "container", yanchor: "bottom" },
    };
  };

  // What stands side by side, has a slider of its own, or is a drawing (no axis to read off) keeps its size and is
  // scrolled instead: its labels would run into each other.
  const isWide = (layout) => {
    const axes = Object.entries(layout).filter(([name]) => /^xaxis\d*$/.test(name)).map(([, axis]) => axis);
    const ends = axes.filter((axis) => axis.domain).map((axis) => axis.domain);
    const beside = ends.some((a) => ends.some((b) => a[1] <= b[0]));
    return beside || !!layout.sliders || (layout.xaxis || {}).visible === false;
  };

  // Only where there is something beyond the edge.
  const tellScroll = (box) => {
    if (box.scrollWidth <= box.clientWidth + 1 || box.nextElementSibling?.classList.contains("hint")) return;
    const hint = document.createElement("p");
    hint.className = "note hint";
    hint.textContent = "Goes on to the right: scroll it sideways.";
    box.after(hint);
  };

  for (const plot of plots) {
    const figure = JSON.parse(document.getElementById(plot.dataset.figure).textContent);
    const { width, ...layout } = figure.layout || {};
    try {
      const room = plot.clientWidth;
      const shown = isWide(layout) && room < 640 ? { ...layout, width: 640 } : narrow(figure.data || [], layout, room);
      if (shown.width) {
        fixed.set(plot, shown.width);
        plot.tabIndex = 0; // to scroll it with the keyboard
      }
      plot.style.height = (shown.height || 420) + "px";
      Plotly.newPlot(plot, {
        data: figure.data || [], layout: { autosize: true, ...shown }, frames: figure.frames || [],
        config: { displaylogo: false, responsive: true, showSendToCloud: false },
      }).then(() => tellScroll(plot)).catch((error) => failed(plot, error));
    } catch (error) {
      failed(plot, error);
    }
  }

  for (const box of document.querySelectorAll(".scroll, pre")) tellScroll(box);

  function failed(plot, error) {
    const line = document.createElement("p");
    line.className = "failed";
    line.textContent = "This chart could not be drawn: " + error.message;
    Plotly.purge(plot);
    plot.classList.remove("js-plotly-plot");
    plot.replaceChildren(line);
    plot.style.height = "auto";
  }

  // Paper is narrower than most windows, and plotly does not hear of printing.
  const widen = (width) => {
    for (const plot of plots.filter((one) => one.classList.contains("js-plotly-plot"))) {
      const own = width || fixed.get(plot) || null;
      Plotly.relayout(plot, { width: own, autosize: own === null });
    }
  };
  addEventListener("beforeprint", () => widen(680));
  addEventListener("afterprint", () => widen(null));
})();
