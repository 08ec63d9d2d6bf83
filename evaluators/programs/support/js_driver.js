// Standard input: one line "<nonce> <assert name> <done name>", then a program, which is run like a
// file /tmp/program.js. Writes C to descriptor 3 when it compiles; the nonce when done() is called
// after at least one assertion and none failed, N instead when there was none.
'use strict';
const fs = require('fs');
const vm = require('vm');
const Module = require('module');

const input = fs.readFileSync(0).toString('utf8');
const end = input.indexOf('\n');
const [nonce, assertName, doneName] = input.slice(0, end).split(' ');
const program = input.slice(end + 1);

const {writeSync} = fs;
const show = console.assert.bind(console);
let asserted = 0, failed = 0;
const fix = (name, value) =>
  Object.defineProperty(globalThis, name, {value, writable: false, configurable: false});
const check = (...values) => {
  ++asserted;
  if (!values[0]) ++failed;
  show(...values);
};
fix(assertName, check);
fix(doneName, () => {
  if (failed === 0) writeSync(3, asserted > 0 ? nonce : 'N');
});
// Assertions that are not the test's own count neither way, but cannot be silenced.
Object.defineProperty(console, 'assert', {value: show, writable: false, configurable: false});

const file = '/tmp/program.js';
try {
  new vm.Script(Module.wrap(program), {filename: file});
} catch (error) {
  console.error(String(error));
  process.exit(1);
}
writeSync(3, 'C');
const module_ = new Module(file, null);
module_.filename = file;
module_.paths = Module._nodeModulePaths('/tmp');
module_._compile(program, file);
