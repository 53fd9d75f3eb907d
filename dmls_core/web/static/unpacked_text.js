// The text of a file that is compressed with gzip or zstd, or packed into a zip archive.

import { ApiError } from "./app.js";
import { Decompress, Gunzip, Inflate } from "./fflate.js";

const DIRECTORY_END = 0x06054b50;
const LONGEST_COMMENT = 65_535;

/**
 * Return the text of a compressed file, whose bytes `packed` has, as a stream; throw if it cannot be unpacked here.
 * The stream fails with an `ApiError` if the file is damaged.
 */
export async function textOf(file, packed) {
  const [start, end] = await Promise.all([file.slice(0, 4), file.slice(-4)].map(numberIn));
  if ((start & 0xffff) === 0x8b1f) return packed.pipeThrough(unpacking(Gunzip, (size) => !end || end === size % 2 ** 32));
  if (start === 0xfd2fb528) return packed.pipeThrough(unpacking(Zstd, () => true));
  if (start === 0x04034b50) return onlyMember(file, packed);
  throw new Error("it is not compressed with gzip or zstd, or a zip archive");
}

async function numberIn(blob) {
  return blob.size === 4 ? new DataView(await blob.arrayBuffer()).getUint32(0, true) : 0;
}

class Zstd extends Decompress {
  constructor(_, found) {
    super(found);
  }
}

/** Return a stream that unpacks what passes through it; `complete` tells by the size of the last part whether it ended. */
function unpacking(Kind, complete) {
  let [engine, size, before] = [null, 0, 0];
  const push = (bytes, last) => {
    try {
      engine.push(bytes, last);
    } catch {
      throw damaged();
    }
  };
  return new TransformStream({
    start(out) {
      engine = new Kind({}, (bytes) => {
        size += bytes.length;
        if (bytes.length) out.enqueue(bytes);
      });
      engine.onmember = () => { before = size; };
    },
    transform: (bytes) => push(bytes, false),
    flush() {
      push(new Uint8Array(0), true);
      if (!complete(size - before)) throw damaged();
    },
  });
}

function damaged() {
  const problem = { message: "the file cannot be unpacked", hint: "it is damaged or incomplete: download or pack it again" };
  return new ApiError({ status: 422, detail: problem.message, problems: [problem] });
}

/** Return the content of the only file of a zip archive as a stream; throw if this is another archive. */
async function onlyMember(file, packed) {
  const tail = new DataView(await file.slice(-22 - LONGEST_COMMENT).arrayBuffer());
  let at = tail.byteLength - 22;
  while (at >= 0 && tail.getUint32(at, true) !== DIRECTORY_END) at -= 1;
  if (at < 0) throw new Error("the archive is cut");
  const directory = new DataView(await file.slice(tail.getUint32(at + 16, true)).arrayBuffer());
  const members = [...entries(directory, tail.getUint16(at + 10, true))].filter(({ name }) => !name.startsWith("__MACOSX/") && !name.endsWith("/"));
  if (members.length !== 1) throw new Error("the archive has several files, or none");
  const [{ encrypted, method, size, whole, start }] = members;
  if (encrypted || ![0, 8].includes(method) || size === 0xffffffff) throw new Error("the archive is encrypted, or of a rare kind");
  const local = new DataView(await file.slice(start, start + 30).arrayBuffer());
  const from = start + 30 + local.getUint16(26, true) + local.getUint16(28, true);
  const member = packed.pipeThrough(excerpt(from, size));
  return method ? member.pipeThrough(unpacking(Inflate, (found) => found === whole)) : member;
}

function* entries(directory, count) {
  for (let at = 0, number = 0; number < count; number += 1) {
    const [name, extra, comment] = [28, 30, 32].map((place) => directory.getUint16(at + place, true));
    yield {
      name: new TextDecoder().decode(new Uint8Array(directory.buffer, at + 46, name)),
      encrypted: directory.getUint16(at + 8, true) & 1,
      method: directory.getUint16(at + 10, true),
      size: directory.getUint32(at + 20, true),
      whole: directory.getUint32(at + 24, true),
      start: directory.getUint32(at + 42, true),
    };
    at += 46 + name + extra + comment;
  }
}

/** Return a stream of `size` of the bytes that pass through it, from the one at `from` on. */
function excerpt(from, size) {
  let position = 0;
  return new TransformStream({
    transform(bytes, out) {
      const [first, last] = [Math.max(0, from - position), Math.min(bytes.length, from + size - position)];
      position += bytes.length;
      if (first < last) out.enqueue(bytes.subarray(first, last));
    },
  });
}
