"use strict";
// Adds to each operation a form that sends it to the server, and shows the answer.
function field(form, label, name, value, multiline) {
  const line = document.createElement("label");
  line.append(label);
  const input = document.createElement(multiline ? "textarea" : "input");
  input.name = name;
  input.value = value;
  input.autocapitalize = "off";
  input.spellcheck = false;
  line.append(input);
  form.append(line);
}
function shown(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}
// Writes a body as its media type wants it. Forms are entered as JSON; the browser knows the boundary of multipart.
function encoded(media, text, headers) {
  const isMultipart = media === "multipart/form-data";
  if (!isMultipart) headers.set("Content-Type", media === "*/*" ? "application/octet-stream" : media);
  if (!isMultipart && media !== "application/x-www-form-urlencoded") return text;
  const fields = isMultipart ? new FormData() : new URLSearchParams();
  for (const [name, value] of Object.entries(JSON.parse(text)))
    for (const one of Array.isArray(value) ? value : value === null ? [] : [value]) fields.append(name, one);
  return fields;
}
async function send(section, form, output) {
  let path = section.dataset.path;
  const query = new URLSearchParams();
  const headers = new Headers();
  for (const parameter of section.querySelectorAll("dt[data-in]")) {
    const { in: place, name } = parameter.dataset;
    const value = form.elements[place + " " + name]?.value ?? "";
    if (place === "path") path = path.replace("{" + name + "}", encodeURIComponent(value));
    else if (value !== "" && place === "query") query.append(name, value);
    else if (value !== "" && place === "header") headers.set(name, value);
  }
  const authorization = form.elements.authorization.value;
  if (authorization !== "") headers.set("Authorization", authorization);
  const url = section.dataset.server.replace(/\/$/, "") + path + (query.size ? "?" + query : "");
  const options = { method: section.dataset.method, headers };
  const text = form.elements.body?.value ?? "";
  if (text !== "" && !["GET", "HEAD", "TRACE"].includes(options.method)) {
    try {
      options.body = encoded(section.querySelector("template").dataset.media, text, headers);
    } catch (error) {
      output.textContent = "The body is no JSON: " + error;
      return;
    }
  }
  const began = performance.now();
  output.textContent = options.method + " " + url + " …";
  try {
    const response = await fetch(url, options);
    const text = await response.text();
    const fields = [...response.headers].map(([name, value]) => name + ": " + value).join("\n");
    const took = Math.round(performance.now() - began);
    output.textContent = `${response.status} ${response.statusText} (${took} ms)\n${fields}\n\n${shown(text)}`;
  } catch (error) {
    output.textContent = options.method + " " + url + "\n" + error;
  }
}
for (const section of document.querySelectorAll("section")) {
  const details = document.createElement("details");
  const title = document.createElement("summary");
  title.textContent = "Try it";
  const form = document.createElement("form");
  for (const parameter of section.querySelectorAll("dt[data-in]")) {
    const { in: place, name } = parameter.dataset;
    field(form, name, place + " " + name, "", false);
  }
  field(form, "Authorization", "authorization", "", false);
  const example = section.querySelector("template");
  if (example) field(form, "Body, " + example.dataset.media + (/form/.test(example.dataset.media) ? ", its fields as JSON" : ""), "body", example.content.textContent, true);
  const button = document.createElement("button");
  button.textContent = "Send";
  const output = document.createElement("pre");
  output.setAttribute("aria-live", "polite");
  form.append(button, output);
  form.addEventListener("submit", (event) => { event.preventDefault(); send(section, form, output); });
  details.append(title, form);
  section.append(details);
}
