// A server in JavaScript through koffi and highwire.h: /hello, /users/{id}, and POST /echo, which sends JSON back.
//
//     npm install && LD_LIBRARY_PATH=PREFIX/lib node hello.js 127.0.0.1:8080
//
// The server's worker waits while Node runs a handler on its own thread.
'use strict';
const koffi = require('koffi');

const library = koffi.load(process.env.HIGHWIRE_LIBRARY || 'libhighwire.so.0');
const Handler = koffi.proto('void highwire_handler(uint64_t request, void *data)');
koffi.struct('highwire_string', { data: 'void *', length: 'size_t' });
const lastError = library.func('const char *highwire_last_error()');
const appNew = library.func('int highwire_app_new(_Out_ uint64_t *app)');
const appRoute = library.func(
  'int highwire_app_route(uint64_t app, const char *method, const char *path, int32_t body, highwire_handler *handler, void *data)');
const serverNew = library.func('int highwire_server_new(uint64_t app, _Out_ uint64_t *server)');
const serverListen = library.func('int highwire_server_listen(uint64_t server, const char *address)');
const serverAddress = library.func('const char *highwire_server_address(uint64_t server, size_t index)');
const serverStart = library.func('int highwire_server_start(uint64_t server)');
const requestParam = library.func('int highwire_request_param(uint64_t request, const char *name, _Out_ highwire_string *value)');
const requestBody = library.func('int highwire_request_body(uint64_t request, _Out_ highwire_string *value)');
const respondBytes = library.func(
  'int highwire_respond(uint64_t request, uint32_t status, const char *type, const void *body, size_t length)');
// Handlers run on Node's thread, so requests are deferred before their worker calls.
const DEFERRED = 16, BODY_NONE = DEFERRED, BODY_WHOLE = 1 | DEFERRED;

function check(result) {
  if (result !== 0) {
    console.error(lastError());
    process.exit(1);
  }
}

function respond(request, status, type, text) {
  const bytes = Buffer.from(text);
  respondBytes(request, status, type, bytes, bytes.length);
}

function text(string) {
  const length = Number(string.length);
  return length === 0 ? '' : Buffer.from(koffi.decode(string.data, 'uint8_t', length)).toString();
}

const [app, server] = [[0n], [0n]];
check(appNew(app));

function route(method, path, body, handler) {
  const callback = koffi.register(handler, koffi.pointer(Handler));
  check(appRoute(app[0], method, path, body, callback, null));
}

route('GET', '/hello', BODY_NONE, (request) => answer(request, () => [200, 'text/plain', 'Hello, World!']));
route('GET', '/users/{id}', BODY_NONE, (request) => answer(request, () => {
  const id = {};
  requestParam(request, 'id', id);
  return [200, 'text/plain', `user ${text(id)}`];
}));
route('POST', '/echo', BODY_WHOLE, (request) => answer(request, () => {
  const body = {};
  requestBody(request, body);
  try {
    return [200, 'application/json', JSON.stringify({ echo: JSON.parse(text(body)) })];
  } catch (problem) {
    return [400, 'text/plain', problem.message];
  }
}));

// Runs a handler, whose exceptions must not leave the callback.
function answer(request, handler) {
  try {
    respond(request, ...handler());
  } catch (problem) {
    respond(request, 500, 'text/plain', String(problem));
  }
}

check(serverNew(app[0], server));
check(serverListen(server[0], process.argv[2] || '127.0.0.1:8080'));
console.log(`http://${serverAddress(server[0], 0)}`);
check(serverStart(server[0]));
// The server runs in threads of its own, so something must keep Node's loop alive.
setInterval(() => {}, 1 << 30);
