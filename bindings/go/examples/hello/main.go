// A server in Go through cgo and highwire.h: /hello, /users/{id}, and POST /echo, which sends JSON back.
//
//	CGO_CFLAGS="$(pkg-config --cflags highwire)" CGO_LDFLAGS="$(pkg-config --libs highwire)" go build -o hello .
//	./hello 127.0.0.1:8080
package main

/*
#cgo LDFLAGS: -lhighwire
#include <highwire.h>
#include <stdlib.h>

extern void goHandle(highwire_request request, void *data);

// data is the number of the Go function.
static int route(highwire_app app, const char *method, const char *path, int body, uintptr_t number) {
	return highwire_app_route(app, method, path, body, goHandle, (void *)number);
}
*/
import "C"

import (
	"encoding/json"
	"fmt"
	"os"
	"unsafe"
)

// Request is a request that is being handled. It is valid until its handler returns.
type Request C.highwire_request

// The handlers by their numbers, because C must not hold pointers of Go.
var handlers []func(Request)

//export goHandle
func goHandle(request C.highwire_request, data unsafe.Pointer) {
	handlers[uintptr(data)](Request(request))
}

// Param returns a parameter of the path.
func (request Request) Param(name string) string {
	cName := C.CString(name)
	defer C.free(unsafe.Pointer(cName))
	var value C.highwire_string
	if C.highwire_request_param(C.highwire_request(request), cName, &value) != C.HIGHWIRE_OK {
		return ""
	}
	return C.GoStringN(value.data, C.int(value.length))
}

// Body returns a copy of the whole body.
func (request Request) Body() []byte {
	var body C.highwire_string
	C.highwire_request_body(C.highwire_request(request), &body)
	return C.GoBytes(unsafe.Pointer(body.data), C.int(body.length))
}

var (
	plain = C.CString("text/plain; charset=utf-8")
	asJSON  = C.CString("application/json")
)

// Respond answers with bytes, which are copied.
func (request Request) Respond(status int, contentType *C.char, body []byte) {
	var data unsafe.Pointer
	if len(body) > 0 {
		data = unsafe.Pointer(&body[0])
	}
	C.highwire_respond(C.highwire_request(request), C.uint32_t(status), contentType, data, C.size_t(len(body)))
}

func check(result C.int) {
	if result != C.HIGHWIRE_OK {
		fmt.Fprintln(os.Stderr, C.GoString(C.highwire_last_error()))
		os.Exit(1)
	}
}

func route(app C.highwire_app, method, path string, body C.int, handler func(Request)) {
	cMethod, cPath := C.CString(method), C.CString(path)
	defer C.free(unsafe.Pointer(cMethod))
	defer C.free(unsafe.Pointer(cPath))
	handlers = append(handlers, handler)
	check(C.route(app, cMethod, cPath, body, C.uintptr_t(len(handlers)-1)))
}

func main() {
	address := "127.0.0.1:8080"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	var app C.highwire_app
	var server C.highwire_server
	check(C.int(C.highwire_app_new(&app)))
	route(app, "GET", "/hello", C.HIGHWIRE_BODY_NONE, func(request Request) {
		request.Respond(200, plain, []byte("Hello, World!"))
	})
	route(app, "GET", "/users/{id}", C.HIGHWIRE_BODY_NONE, func(request Request) {
		request.Respond(200, plain, []byte("user "+request.Param("id")))
	})
	route(app, "POST", "/echo", C.HIGHWIRE_BODY_WHOLE, func(request Request) {
		var value any
		if err := json.Unmarshal(request.Body(), &value); err != nil {
			request.Respond(400, plain, []byte(err.Error()))
			return
		}
		body, _ := json.Marshal(map[string]any{"echo": value})
		request.Respond(200, asJSON, body)
	})
	check(C.int(C.highwire_server_new(app, &server)))
	cAddress := C.CString(address)
	defer C.free(unsafe.Pointer(cAddress))
	check(C.int(C.highwire_server_listen(server, cAddress)))
	fmt.Println("http://" + C.GoString(C.highwire_server_address(server, 0)))
	check(C.int(C.highwire_server_run(server)))
}
