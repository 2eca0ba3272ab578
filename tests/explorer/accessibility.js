// Rules of accessibility for a page: names of controls, contrast, focus, size of targets. Returns what breaks them.
() => {
  const problems = [], all = [...document.querySelectorAll("#explorer *")];
  const shown = (node) => { const box = node.getBoundingClientRect(), style = getComputedStyle(node); return box.width > 1 && box.height > 1 && style.visibility !== "hidden" && style.display !== "none" && !node.closest(".hidden"); };
  const say = (node) => `${node.tagName.toLowerCase()}.${node.getAttribute("class") || ""} “${(node.textContent || "").slice(0, 30)}”`;
  const name = (node) => {
    const labelled = (node.getAttribute("aria-labelledby") || "").split(" ").map((id) => document.getElementById(id)?.textContent || "").join(" ").trim();
    return labelled || node.getAttribute("aria-label") || [...(node.labels || [])].map((label) => label.textContent).join(" ").trim() || (/BUTTON|SUMMARY|A/.test(node.tagName) ? node.textContent.trim() : "");
  };
  for (const node of all.filter(shown)) {
    if (node.matches("button, input, select, textarea, summary, a, progress, [role=slider], [role=region], [role=tablist], [role=radiogroup], [role=toolbar], svg, canvas:not([aria-hidden=true])") && !name(node)) problems.push(`no name: ${say(node)}`);
    if (node.matches("[role=slider]") && !["aria-valuenow", "aria-valuemin", "aria-valuemax"].every((part) => node.hasAttribute(part))) problems.push(`slider without a value: ${say(node)}`);
    if (Number(node.getAttribute("tabindex")) > 0) problems.push(`order of focus changed: ${say(node)}`);
    if (node.matches("button, select, input, textarea") && node.type !== "checkbox" && node.getBoundingClientRect().height < 24) problems.push(`small target: ${say(node)}`);
  }
  const ids = all.map((node) => node.id).filter(Boolean);
  if (new Set(ids).size !== ids.length) problems.push("an id is used twice");
  if (document.querySelectorAll("#explorer h1").length !== 1) problems.push("there is not one h1");
  for (const group of document.querySelectorAll(".tokens, [role=radiogroup], [role=tablist]")) {
    const stops = [...group.querySelectorAll("[tabindex='0']")].length;
    if (group.children.length && stops !== 1) problems.push(`${group.className} has ${stops} stops of the Tab key`);
  }
  const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const rgb = (colour, below = [255, 255, 255]) => { context.fillStyle = `rgb(${below.slice(0, 3).join(",")})`; context.fillRect(0, 0, 1, 1); context.fillStyle = colour; context.fillRect(0, 0, 1, 1); return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3); };
  const back = (node) => { if (!node) return [255, 255, 255]; const colour = getComputedStyle(node).backgroundColor; return colour === "rgba(0, 0, 0, 0)" ? back(node.parentElement) : rgb(colour, back(node.parentElement)); };
  const light = (colour) => colour.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)).reduce((total, c, i) => total + c * [0.2126, 0.7152, 0.0722][i], 0);
  const walker = document.createTreeWalker(document.getElementById("explorer"), NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const node = text.parentElement;
    if (!text.textContent.trim() || !shown(node) || node.closest("style, option, :disabled")) continue;
    const style = getComputedStyle(node), below = back(node), ink = rgb(node.closest("svg") ? style.fill : style.color, below), [a, b] = [light(ink), light(below)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) problems.push(`contrast ${ratio.toFixed(2)}: ${say(node)}`);
  }
  return problems;
}
