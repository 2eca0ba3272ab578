// The model of the AFM interface outside of notebooks: requests are answered by the server, or from what the page holds.
// State is part of the address, so that a link reproduces the view.

class HostModel {
  constructor(traits) { this.traits = traits; this.listeners = new Map(); }
  get(name) { return this.traits[name]; }
  set(name, value) { this.traits[name] = value; }
  on(event, callback) { this.listeners.set(event, [...(this.listeners.get(event) || []), callback]); }
  off(event, callback) { this.listeners.set(event, (this.listeners.get(event) || []).filter((each) => each !== callback)); }
  emit(event, ...given) { for (const callback of this.listeners.get(event) || []) callback(...given); }
  save_changes() { try { history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(this.traits.state))}`); } catch { /* addresses have a longest length */ } }
}

function stateOfAddress() {
  try { return JSON.parse(decodeURIComponent(location.hash.slice(1))); } catch { return {}; }
}

class StaticModel extends HostModel {
  send(request) {
    const { id, ...asked } = request, found = this.traits.answers[key(asked)];
    const bytes = (text) => new DataView(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
    const message = found ? found.content : { error: "This page holds no answer to that: it needs the model. Run: attnscope explore MODEL" };
    queueMicrotask(() => this.emit("msg:custom", { id, ...message }, found ? found.buffers.map(bytes) : []));
  }
}

class ServerModel extends HostModel {
  constructor(traits) {
    super(traits);
    this.unsent = [];
    const address = new URL("ws", location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:"; address.hash = "";
    address.search = location.search;
    this.socket = new WebSocket(address);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => { for (const message of this.unsent.splice(0)) this.socket.send(message); };
    this.socket.onmessage = (event) => this.receive(event.data);
    this.socket.onclose = () => this.emit("closed");
  }

  // A message: the length of the JSON (32 bits), the JSON, then buffers whose lengths the JSON states.
  send(request, _, buffers = []) {
    const header = new TextEncoder().encode(JSON.stringify({ ...request, buffers: buffers.map((each) => each.byteLength) }));
    const message = new Uint8Array(4 + header.length + buffers.reduce((total, each) => total + each.byteLength, 0));
    new DataView(message.buffer).setUint32(0, header.length, true);
    message.set(header, 4);
    let place = 4 + header.length;
    for (const each of buffers) { message.set(new Uint8Array(each), place); place += each.byteLength; }
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(message);
    else if (this.socket.readyState === WebSocket.CONNECTING) this.unsent.push(message);
    else this.emit("msg:custom", { id: request.id, error: "The server has stopped: start it again with attnscope explore, and reload this page." });
  }

  receive(data) {
    const length = new DataView(data).getUint32(0, true), { buffers, ...message } = JSON.parse(new TextDecoder().decode(data.slice(4, 4 + length)));
    let place = 4 + length;
    this.emit("msg:custom", message, buffers.map((size) => { place += size; return new DataView(data.slice(place - size, place)); }));
  }
}

const page = JSON.parse(document.getElementById("page").textContent);
const hosted = page.host === "static" ? new StaticModel({ ...page, state: stateOfAddress() }) : new ServerModel({ ...page, state: stateOfAddress() });
addEventListener("hashchange", () => { hosted.set("state", stateOfAddress()); hosted.emit("change:state"); });
hosted.on("closed", () => document.body.prepend(Object.assign(document.createElement("p"), { role: "alert", textContent: "The server has stopped. Start it again with attnscope explore, then open its new address." })));
explorer.render({ model: hosted, el: document.getElementById("explorer") });
