-- A server in Lua through LuaJIT's ffi and highwire.h: /hello, /users/{id}, and POST /echo, which sends JSON back.
--
--     LD_LIBRARY_PATH=PREFIX/lib luajit hello.lua 127.0.0.1:8080
--
-- A Lua state has one thread, so the server runs inside a loop of the program.
local ffi = require("ffi")

ffi.cdef [[
typedef uint64_t highwire_app, highwire_server, highwire_request, highwire_loop;
typedef void (*highwire_handler)(highwire_request request, void *data);
typedef struct { const char *data; size_t length; } highwire_string;
const char *highwire_last_error(void);
int highwire_app_new(highwire_app *out);
int highwire_app_route(highwire_app app, const char *method, const char *path, int32_t body, highwire_handler handler, void *data);
int highwire_server_new(highwire_app app, highwire_server *out);
int highwire_server_listen(highwire_server server, const char *address);
const char *highwire_server_address(highwire_server server, size_t index);
int highwire_loop_new(highwire_server server, int32_t engine, highwire_loop *out);
int highwire_loop_descriptor(highwire_loop loop, int32_t *out);
int highwire_loop_turn(highwire_loop loop, int32_t *has_ended);
int highwire_request_param(highwire_request request, const char *name, highwire_string *out);
int highwire_request_body(highwire_request request, highwire_string *out);
int highwire_respond(highwire_request request, uint32_t status, const char *content_type, const void *body, size_t length);
struct pollfd { int fd; short events; short revents; };
int poll(struct pollfd *fds, unsigned long count, int timeout);
]]

local highwire = ffi.load("highwire")
local BODY_NONE, BODY_WHOLE = 0, 1
local string_out = ffi.new("highwire_string[1]")

local function check(result)
    if result ~= 0 then
        io.stderr:write(ffi.string(highwire.highwire_last_error()), "\n")
        os.exit(1)
    end
end

local function respond(request, status, content_type, body)
    highwire.highwire_respond(request, status, content_type, body, #body)
end

local function value(call, ...)
    if call(...) ~= 0 then
        return ""
    end
    return ffi.string(string_out[0].data, string_out[0].length)
end

local app = ffi.new("highwire_app[1]")
check(highwire.highwire_app_new(app))

-- The callbacks must stay referenced for as long as the server lives.
local handlers = {}
local function route(method, path, body, handler)
    local callback = ffi.cast("highwire_handler", function(request)
        local fine, problem = pcall(handler, request)
        if not fine then
            respond(request, 500, "text/plain", tostring(problem))
        end
    end)
    handlers[#handlers + 1] = callback
    check(highwire.highwire_app_route(app[0], method, path, body, callback, nil))
end

route("GET", "/hello", BODY_NONE, function(request)
    respond(request, 200, "text/plain", "Hello, World!")
end)
route("GET", "/users/{id}", BODY_NONE, function(request)
    respond(request, 200, "text/plain", "user " .. value(highwire.highwire_request_param, request, "id", string_out))
end)
route("POST", "/echo", BODY_WHOLE, function(request)
    local body = value(highwire.highwire_request_body, request, string_out)
    -- Lua has no parser of JSON of its own. This one only tells whether there is a value.
    if not body:match("^%s*[%[{\"%dtfn-]") then
        return respond(request, 400, "text/plain", "this is not JSON")
    end
    respond(request, 200, "application/json", '{"echo":' .. body .. "}")
end)

local server, loop = ffi.new("highwire_server[1]"), ffi.new("highwire_loop[1]")
local descriptor, ended = ffi.new("int32_t[1]"), ffi.new("int32_t[1]")
check(highwire.highwire_server_new(app[0], server))
check(highwire.highwire_server_listen(server[0], arg[1] or "127.0.0.1:8080"))
check(highwire.highwire_loop_new(server[0], 0, loop))
check(highwire.highwire_loop_descriptor(loop[0], descriptor))
print("http://" .. ffi.string(highwire.highwire_server_address(server[0], 0)))
io.stdout:flush()

local waiting = ffi.new("struct pollfd[1]", { { descriptor[0], 1, 0 } })
-- A function that calls back into Lua must not be compiled.
local function turn()
    check(highwire.highwire_loop_turn(loop[0], ended))
end
jit.off(turn)
while ended[0] == 0 do
    turn()
    ffi.C.poll(waiting, 1, -1)
end
