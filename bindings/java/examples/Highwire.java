import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.function.LongConsumer;

/**
 * A server in Java through JNI and highwire.h: /hello, /users/{id}, and POST /echo, which sends JSON back.
 *
 * <pre>
 * javac Highwire.java
 * LD_LIBRARY_PATH=PREFIX/lib java -Djava.library.path=. Highwire 127.0.0.1:8080
 * </pre>
 *
 * highwire_jni.c is the other half; its head tells how to compile it.
 */
public final class Highwire {
    private static final int BODY_NONE = 0;
    private static final int BODY_WHOLE = 1;
    private static final byte[] PLAIN = bytes("text/plain");
    private static final byte[] JSON = bytes("application/json");
    private static final byte[] HELLO = bytes("Hello, World!");

    /** The handlers by their numbers. */
    private static final List<LongConsumer> HANDLERS = new ArrayList<>();

    private static native long appNew();

    private static native void route(long app, String method, String path, int body, int number);

    private static native long serverNew(long app);

    /** Listens, and returns the address with the port that was chosen. */
    private static native String listen(long server, String address);

    private static native void serve(long server);

    private static native byte[] param(long request, String name);

    private static native byte[] body(long request);

    private static native void respond(long request, int status, byte[] contentType, byte[] body);

    /** Is called on the threads of the server's workers. */
    private static void dispatch(long request, int number) {
        try {
            HANDLERS.get(number).accept(request);
        } catch (RuntimeException problem) {
            respond(request, 500, PLAIN, bytes(String.valueOf(problem)));
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void route(long app, String method, String path, int body, LongConsumer handler) {
        HANDLERS.add(handler);
        route(app, method, path, body, HANDLERS.size() - 1);
    }

    public static void main(String[] arguments) {
        System.loadLibrary("highwire_jni");
        long app = appNew();
        route(app, "GET", "/hello", BODY_NONE, request -> respond(request, 200, PLAIN, HELLO));
        route(app, "GET", "/users/{id}", BODY_NONE, request -> {
            String id = new String(param(request, "id"), StandardCharsets.UTF_8);
            respond(request, 200, PLAIN, bytes("user " + id));
        });
        route(app, "POST", "/echo", BODY_WHOLE, request -> {
            String text = new String(body(request), StandardCharsets.UTF_8).trim();
            // The JDK has no parser of JSON. This only tells whether there is a value.
            if (text.isEmpty() || "{[\"-0123456789tfn".indexOf(text.charAt(0)) < 0) {
                respond(request, 400, PLAIN, bytes("this is not JSON"));
            } else {
                respond(request, 200, JSON, bytes("{\"echo\":" + text + "}"));
            }
        });
        long server = serverNew(app);
        System.out.println("http://" + listen(server, arguments.length > 0 ? arguments[0] : "127.0.0.1:8080"));
        System.out.flush();
        serve(server);
    }
}
