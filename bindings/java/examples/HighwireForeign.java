import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.charset.StandardCharsets;
import java.util.function.LongConsumer;

/**
 * A server in Java through the Foreign Function API of JDK 22 and later, without code in C: /hello, /users/{id}, and POST /echo, which
 * sends JSON back.
 *
 * <pre>
 * javac HighwireForeign.java
 * LD_LIBRARY_PATH=PREFIX/lib java --enable-native-access=ALL-UNNAMED HighwireForeign 127.0.0.1:8080
 * </pre>
 */
public final class HighwireForeign {
    private static final int BODY_NONE = 0;
    private static final int BODY_WHOLE = 1;
    /** A highwire_string: a pointer and a length. */
    private static final MemoryLayout STRING = MemoryLayout.structLayout(ADDRESS, JAVA_LONG);

    private static final Linker LINKER = Linker.nativeLinker();
    private static final SymbolLookup LIBRARY =
            SymbolLookup.libraryLookup(System.mapLibraryName("highwire"), Arena.global());

    private static final MethodHandle APP_NEW = function("highwire_app_new", ADDRESS);
    private static final MethodHandle APP_ROUTE =
            function("highwire_app_route", JAVA_LONG, ADDRESS, ADDRESS, JAVA_INT, ADDRESS, ADDRESS);
    private static final MethodHandle SERVER_NEW = function("highwire_server_new", JAVA_LONG, ADDRESS);
    private static final MethodHandle SERVER_LISTEN = function("highwire_server_listen", JAVA_LONG, ADDRESS);
    private static final MethodHandle SERVER_RUN = function("highwire_server_run", JAVA_LONG);
    private static final MethodHandle REQUEST_PARAM = function("highwire_request_param", JAVA_LONG, ADDRESS, ADDRESS);
    private static final MethodHandle REQUEST_BODY = function("highwire_request_body", JAVA_LONG, ADDRESS);
    private static final MethodHandle RESPOND =
            function("highwire_respond", JAVA_LONG, JAVA_INT, ADDRESS, ADDRESS, JAVA_LONG);
    private static final MethodHandle SERVER_ADDRESS = LINKER.downcallHandle(
            LIBRARY.findOrThrow("highwire_server_address"), FunctionDescriptor.of(ADDRESS, JAVA_LONG, JAVA_LONG));
    private static final MethodHandle LAST_ERROR =
            LINKER.downcallHandle(LIBRARY.findOrThrow("highwire_last_error"), FunctionDescriptor.of(ADDRESS));

    // These live as long as the program.
    private static final MemorySegment PLAIN = Arena.global().allocateFrom("text/plain");
    private static final MemorySegment JSON = Arena.global().allocateFrom("application/json");
    private static final MemorySegment ID = Arena.global().allocateFrom("id");
    private static final MemorySegment HELLO = Arena.global().allocateFrom("Hello, World!");

    /** Returns a function that returns a highwire_result. */
    private static MethodHandle function(String name, MemoryLayout... arguments) {
        return LINKER.downcallHandle(LIBRARY.findOrThrow(name), FunctionDescriptor.of(JAVA_INT, arguments));
    }

    private static void check(Object result) {
        if ((int) result != 0) {
            try {
                MemorySegment text = (MemorySegment) LAST_ERROR.invokeExact();
                throw new IllegalStateException(text.reinterpret(Long.MAX_VALUE).getString(0));
            } catch (RuntimeException problem) {
                throw problem;
            } catch (Throwable problem) {
                throw new IllegalStateException(problem);
            }
        }
    }

    /** Is called on the threads of the server's workers. Nothing may be thrown into C. */
    private static void dispatch(LongConsumer handler, long request, MemorySegment data) {
        try {
            handler.accept(request);
        } catch (Throwable problem) {
            respond(request, 500, PLAIN, String.valueOf(problem));
        }
    }

    private static void respond(long request, int status, MemorySegment type, MemorySegment body, long length) {
        try {
            // The client may be gone, so the result does not matter.
            int result = (int) RESPOND.invokeExact(request, status, type, body, length);
        } catch (Throwable problem) {
            throw new IllegalStateException(problem);
        }
    }

    private static void respond(long request, int status, MemorySegment type, String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        try (Arena arena = Arena.ofConfined()) {
            // A segment without bytes is not NULL, which the library takes as well.
            respond(request, status, type, arena.allocateFrom(JAVA_BYTE, bytes), bytes.length);
        }
    }

    /** Returns a highwire_string that a function has given, whose bytes belong to the request. */
    private static String text(MemorySegment string) {
        long length = string.get(JAVA_LONG, 8);
        byte[] bytes = length == 0
                ? new byte[0]
                : string.get(ADDRESS, 0).reinterpret(length).toArray(JAVA_BYTE);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static String param(long request, MemorySegment name) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment out = arena.allocate(STRING);
            check((int) REQUEST_PARAM.invokeExact(request, name, out));
            return text(out);
        } catch (RuntimeException problem) {
            throw problem;
        } catch (Throwable problem) {
            throw new IllegalStateException(problem);
        }
    }

    private static String body(long request) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment out = arena.allocate(STRING);
            check((int) REQUEST_BODY.invokeExact(request, out));
            return text(out);
        } catch (RuntimeException problem) {
            throw problem;
        } catch (Throwable problem) {
            throw new IllegalStateException(problem);
        }
    }

    private static void route(long app, String method, String path, int body, LongConsumer handler) throws Throwable {
        MethodHandle dispatch = MethodHandles.lookup()
                .findStatic(HighwireForeign.class, "dispatch",
                        MethodType.methodType(void.class, LongConsumer.class, long.class, MemorySegment.class))
                .bindTo(handler);
        MemorySegment stub =
                LINKER.upcallStub(dispatch, FunctionDescriptor.ofVoid(JAVA_LONG, ADDRESS), Arena.global());
        try (Arena arena = Arena.ofConfined()) {
            check((int) APP_ROUTE.invokeExact(
                    app, arena.allocateFrom(method), arena.allocateFrom(path), body, stub, MemorySegment.NULL));
        }
    }

    public static void main(String[] arguments) throws Throwable {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment handle = arena.allocate(JAVA_LONG);
            check((int) APP_NEW.invokeExact(handle));
            long app = handle.get(JAVA_LONG, 0);
            route(app, "GET", "/hello", BODY_NONE, request -> respond(request, 200, PLAIN, HELLO, 13));
            route(app, "GET", "/users/{id}", BODY_NONE,
                    request -> respond(request, 200, PLAIN, "user " + param(request, ID)));
            route(app, "POST", "/echo", BODY_WHOLE, request -> {
                String text = body(request).trim();
                // The JDK has no parser of JSON. This only tells whether there is a value.
                if (text.isEmpty() || "{[\"-0123456789tfn".indexOf(text.charAt(0)) < 0) {
                    respond(request, 400, PLAIN, "this is not JSON");
                } else {
                    respond(request, 200, JSON, "{\"echo\":" + text + "}");
                }
            });
            check((int) SERVER_NEW.invokeExact(app, handle));
            long server = handle.get(JAVA_LONG, 0);
            String address = arguments.length > 0 ? arguments[0] : "127.0.0.1:8080";
            check((int) SERVER_LISTEN.invokeExact(server, arena.allocateFrom(address)));
            MemorySegment chosen = (MemorySegment) SERVER_ADDRESS.invokeExact(server, 0L);
            System.out.println("http://" + chosen.reinterpret(Long.MAX_VALUE).getString(0));
            System.out.flush();
            check((int) SERVER_RUN.invokeExact(server));
        }
    }
}
