// Files a person chooses become documents, checked here before anything is sent. The server checks them again.

import { bytes } from "./format.js";

const KINDS = [".txt", ".md", ".jsonl"];
const FIELDS = ["id", "title", "text"];
const MOST_PROBLEMS = 5;

/** What is wrong with files, one sentence each. */
export class BadFiles extends Error {
  constructor(problems) {
    const more = problems.length > MOST_PROBLEMS ? [`… and ${problems.length - MOST_PROBLEMS} more`] : [];
    super([...problems.slice(0, MOST_PROBLEMS), ...more].join("\n"));
  }
}

/** Documents of files: a .txt or .md file is one, named by the file; a .jsonl file holds one a line. Raises BadFiles; then nothing is taken. */
export async function readFiles(files, limits) {
  const problems = [];
  const documents = [];
  const total = files.reduce((sum, file) => sum + file.size, 0);
  if (total > 4 * limits.body_bytes)
    throw new BadFiles([`Together these files have ${bytes(total)}; ${bytes(4 * limits.body_bytes)} at most.`]);
  for (const file of files) {
    const kind = file.name.slice(file.name.lastIndexOf(".")).toLowerCase();
    if (!KINDS.includes(kind)) problems.push(`${file.name}: not a .txt, .md or .jsonl file`);
    else if (file.size > 4 * limits.body_bytes)
      problems.push(`${file.name}: larger than ${bytes(4 * limits.body_bytes)}`);
    else {
      try {
        const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
        if (text.includes("\0")) problems.push(`${file.name}: not a text file`);
        else if (kind === ".jsonl") documents.push(...lines(text, file.name, problems));
        else documents.push({ id: file.name, title: titled(file.name, text, kind), text });
      } catch (error) {
        problems.push(`${file.name}: ${error instanceof TypeError ? "not UTF-8 text" : "cannot be read"}`);
      }
    }
  }
  check(documents, limits, problems);
  if (!problems.length && !documents.length) problems.push("There is no document in it.");
  if (problems.length) throw new BadFiles(problems);
  return documents;
}

/** The first heading of a Markdown file, else the file's name without its ending. */
function titled(name, text, kind) {
  const heading = kind === ".md" ? /^#\s+(.+)$/m.exec(text)?.[1] : null;
  return (heading ?? name.slice(0, name.lastIndexOf("."))).trim();
}

function lines(text, name, problems) {
  const found = [];
  text.split(/\r?\n/).forEach((line, i) => {
    if (!line.trim()) return;
    const where = `${name}, line ${i + 1}`;
    let row;
    try {
      row = JSON.parse(line);
    } catch {
      return problems.push(`${where}: not JSON`);
    }
    if (row === null || typeof row !== "object" || Array.isArray(row)) return problems.push(`${where}: not an object`);
    const odd = FIELDS.filter((field) => typeof (row[field] ?? (field === "title" ? "" : undefined)) !== "string");
    if (odd.length) return problems.push(`${where}: ${odd.join(" and ")} must be text`);
    found.push({ id: row.id, title: row.title ?? "", text: row.text });
  });
  return found;
}

/** The bounds of the server, said before anything is sent. */
export function check(documents, limits, problems) {
  const seen = new Set();
  for (const { id, title, text } of documents) {
    const name = `“${id.slice(0, 60)}”`;
    if (!id.trim()) problems.push("A document needs an id.");
    else if (seen.has(id)) problems.push(`${name}: this id occurs twice`);
    if (id.length > limits.id_chars) problems.push(`${name}: an id has at most ${limits.id_chars} characters`);
    if (title.length > limits.title_chars)
      problems.push(`${name}: a title has at most ${limits.title_chars} characters`);
    if (!text.trim()) problems.push(`${name}: there is no text`);
    if (size({ id, title, text }) > limits.body_bytes - 64)
      problems.push(`${name}: larger than ${bytes(limits.body_bytes)}`);
    seen.add(id);
  }
}

const size = (document) => new TextEncoder().encode(JSON.stringify(document)).length + 1;

/** Documents in as few requests as the server's bounds allow. */
export function portions(documents, limits) {
  const found = [];
  let room = 0;
  for (const document of documents) {
    const needs = size(document);
    if (!found.length || found.at(-1).length >= limits.documents || needs > room) {
      found.push([]);
      room = limits.body_bytes - 64;
    }
    found.at(-1).push(document);
    room -= needs;
  }
  return found;
}
