/* The functions of highwire.h that Highwire.java needs, for JDK 17 and others by JNI.
 *
 *     cc -shared -fPIC -I"$JAVA_HOME/include" -I"$JAVA_HOME/include/linux" highwire_jni.c \
 *         $(pkg-config --cflags --libs highwire) -o libhighwire_jni.so
 */
#include <highwire.h>
#include <jni.h>
#include <stdint.h>

static JavaVM *machine;
static jclass type;
static jmethodID dispatch;

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved) {
    JNIEnv *env;
    (void)reserved;
    machine = vm;
    if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_10) != JNI_OK)
        return JNI_ERR;
    jclass found = (*env)->FindClass(env, "Highwire");
    if (found == NULL)
        return JNI_ERR;
    type = (jclass)(*env)->NewGlobalRef(env, found);
    dispatch = (*env)->GetStaticMethodID(env, type, "dispatch", "(JI)V");
    return dispatch == NULL ? JNI_ERR : JNI_VERSION_10;
}

/* Calls the handler with this number. A worker's thread becomes one of Java at its first request, and stays one. */
static void handle(highwire_request request, void *data) {
    JNIEnv *env;
    if ((*machine)->GetEnv(machine, (void **)&env, JNI_VERSION_10) != JNI_OK &&
        (*machine)->AttachCurrentThreadAsDaemon(machine, (void **)&env, NULL) != JNI_OK) {
        highwire_respond(request, 503, NULL, NULL, 0);
        return;
    }
    (*env)->CallStaticVoidMethod(env, type, dispatch, (jlong)request.id, (jint)(intptr_t)data);
    /* `dispatch` catches exceptions, so this is one of the machine. */
    if ((*env)->ExceptionCheck(env)) {
        (*env)->ExceptionClear(env);
        highwire_respond(request, 500, NULL, NULL, 0);
    }
}

static void check(JNIEnv *env, enum highwire_result result) {
    if (result != HIGHWIRE_OK)
        (*env)->ThrowNew(env, (*env)->FindClass(env, "java/lang/IllegalStateException"), highwire_last_error());
}

JNIEXPORT jlong JNICALL Java_Highwire_appNew(JNIEnv *env, jclass self) {
    highwire_app app = {0};
    (void)self;
    check(env, highwire_app_new(&app));
    return (jlong)app.id;
}

JNIEXPORT void JNICALL Java_Highwire_route(JNIEnv *env, jclass self, jlong app, jstring method, jstring path, jint body,
                                           jint number) {
    const char *method_text = (*env)->GetStringUTFChars(env, method, NULL);
    const char *path_text = (*env)->GetStringUTFChars(env, path, NULL);
    (void)self;
    check(env, highwire_app_route((highwire_app){(uint64_t)app}, method_text, path_text, body, handle, (void *)(intptr_t)number));
    (*env)->ReleaseStringUTFChars(env, method, method_text);
    (*env)->ReleaseStringUTFChars(env, path, path_text);
}

JNIEXPORT jlong JNICALL Java_Highwire_serverNew(JNIEnv *env, jclass self, jlong app) {
    highwire_server server = {0};
    (void)self;
    check(env, highwire_server_new((highwire_app){(uint64_t)app}, &server));
    return (jlong)server.id;
}

JNIEXPORT jstring JNICALL Java_Highwire_listen(JNIEnv *env, jclass self, jlong server, jstring address) {
    const char *text = (*env)->GetStringUTFChars(env, address, NULL);
    (void)self;
    enum highwire_result result = highwire_server_listen((highwire_server){(uint64_t)server}, text);
    (*env)->ReleaseStringUTFChars(env, address, text);
    check(env, result);
    return result == HIGHWIRE_OK ? (*env)->NewStringUTF(env, highwire_server_address((highwire_server){(uint64_t)server}, 0)) : NULL;
}

JNIEXPORT void JNICALL Java_Highwire_serve(JNIEnv *env, jclass self, jlong server) {
    (void)self;
    check(env, highwire_server_serve((highwire_server){(uint64_t)server}));
}

static jbyteArray bytes(JNIEnv *env, enum highwire_result result, highwire_string string) {
    if (result != HIGHWIRE_OK || string.length > INT32_MAX)
        return NULL;
    jbyteArray array = (*env)->NewByteArray(env, (jsize)string.length);
    if (array != NULL)
        (*env)->SetByteArrayRegion(env, array, 0, (jsize)string.length, (const jbyte *)string.data);
    return array;
}

JNIEXPORT jbyteArray JNICALL Java_Highwire_param(JNIEnv *env, jclass self, jlong request, jstring name) {
    const char *text = (*env)->GetStringUTFChars(env, name, NULL);
    highwire_string value = {NULL, 0};
    (void)self;
    enum highwire_result result = highwire_request_param((highwire_request){(uint64_t)request}, text, &value);
    (*env)->ReleaseStringUTFChars(env, name, text);
    return bytes(env, result, value);
}

JNIEXPORT jbyteArray JNICALL Java_Highwire_body(JNIEnv *env, jclass self, jlong request) {
    highwire_string value = {NULL, 0};
    (void)self;
    return bytes(env, highwire_request_body((highwire_request){(uint64_t)request}, &value), value);
}

JNIEXPORT void JNICALL Java_Highwire_respond(JNIEnv *env, jclass self, jlong request, jint status, jbyteArray content_type,
                                             jbyteArray body) {
    char kind[128];
    jsize kind_length = (*env)->GetArrayLength(env, content_type), length = (*env)->GetArrayLength(env, body);
    jbyte small[4096];
    (void)self;
    if (kind_length >= (jsize)sizeof kind)
        kind_length = (jsize)sizeof kind - 1;
    (*env)->GetByteArrayRegion(env, content_type, 0, kind_length, (jbyte *)kind);
    kind[kind_length] = '\0';
    if (length <= (jsize)sizeof small) {
        (*env)->GetByteArrayRegion(env, body, 0, length, small);
        highwire_respond((highwire_request){(uint64_t)request}, (uint32_t)status, kind, small, (size_t)length);
    } else {
        jbyte *elements = (*env)->GetByteArrayElements(env, body, NULL);
        highwire_respond((highwire_request){(uint64_t)request}, (uint32_t)status, kind, elements, (size_t)length);
        (*env)->ReleaseByteArrayElements(env, body, elements, JNI_ABORT);
    }
}
