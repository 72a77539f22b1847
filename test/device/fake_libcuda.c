/* fake_libcuda.c: a libcuda without a GPU, for tests: BRIM_LIBCUDA names it. Memory is the host's,
 * kernels do nothing (or what the test's own function does), work on streams is done at once. It
 * keeps count of what its user forgot to free, and refuses what a driver would refuse: unknown
 * handles, addresses out of range, calls without a context.
 *
 * FAKE_CUDA in the environment says how it behaves: settings "name=value" with spaces between. It
 * is read anew at every call.
 *
 *   init=CODE        cuInit gives this error        without=NAME   this function is not there
 *   version=N        12000 is 12.0
 *   devices=N        2 when it is not set           memory=BYTES   of each device; 1 GiB
 *   fail_at=N        the N-th call since fake_cuda_reset() fails, with fail_code=CODE
 *   image=CODE       no image can be loaded         params=BYTES   what every kernel takes
 *   busy=1           streams are never finished     capability=N   90 when it is not set
 *
 * A code that kills the context is given again by every call until the context is let go, as a
 * driver does. A call that frees does so even when it is made to fail. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/cuda_api.h"

#define EXPORT __attribute__((visibility("default")))

enum { DEVICES_MAX = 8, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, PAGE_BYTES = 4096 };
static const uint64_t range_bytes = 1ull << 34;

typedef enum object_kind {
    DEVICE_MEMORY,
    HOST_MEMORY,
    STREAM,
    EVENT,
    MODULE,
    FUNCTION
} object_kind;

typedef struct object {
    struct object *next;
    object_kind kind;
    int device;
    size_t size;
    void *data; /* of memory; else the object itself is the handle */
} object;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static object *objects;
static int retained[DEVICES_MAX];
static brim__cu_result sticky[DEVICES_MAX];
static char contexts[DEVICES_MAX];
static uint64_t calls, leaks, misuses;
static char *range; /* where all memory of devices lies: its addresses are near one another */
static uint64_t range_used, range_blocks;
static void (*kernel)(const void *parameters);
static _Thread_local int current = -1;

/* The interface for tests, found with dlsym. */
EXPORT void fake_cuda_reset(void);
EXPORT uint64_t fake_cuda_calls(void);
EXPORT uint64_t fake_cuda_leaks(void);
EXPORT uint64_t fake_cuda_misuses(void);
EXPORT uint64_t fake_cuda_live(void);
EXPORT void fake_cuda_set_kernel(void (*function)(const void *parameters));

void fake_cuda_reset(void)
{
    calls = leaks = misuses = 0;
}

uint64_t fake_cuda_calls(void)
{
    return calls;
}

/* Objects that were still there when a living context was let go. */
uint64_t fake_cuda_leaks(void)
{
    return leaks;
}

/* Calls with handles, addresses or ranges that are none. */
uint64_t fake_cuda_misuses(void)
{
    return misuses;
}

uint64_t fake_cuda_live(void)
{
    uint64_t count = 0;
    for (const object *o = objects; o; o = o->next)
        count += o->kind != FUNCTION;
    return count;
}

/* What every launch does from now on: it is given the kernel's first parameter. NULL: nothing. It
 * may not call the driver. */
void fake_cuda_set_kernel(void (*function)(const void *parameters))
{
    kernel = function;
}

/* ---- settings ---- */

static const char *setting_text(const char *name)
{
    const char *at = getenv("FAKE_CUDA");
    size_t size = strlen(name);
    while (at && *at) {
        if (strncmp(at, name, size) == 0 && at[size] == '=')
            return at + size + 1;
        at = strchr(at, ' ');
        at += at ? 1 : 0;
    }
    return NULL;
}

static long long setting(const char *name, long long otherwise)
{
    const char *text = setting_text(name);
    return text ? strtoll(text, NULL, 10) : otherwise;
}

static int device_count(void)
{
    int count = (int)setting("devices", 2);
    return count < DEVICES_MAX ? count : DEVICES_MAX;
}

/* ---- failing ---- */

static bool kills(brim__cu_result code)
{
    return (code >= 700 && code < 720 && code != 701) || code == BRIM__CU_ECC_UNCORRECTABLE ||
           code == BRIM__CU_DEVICE_UNAVAILABLE || code == BRIM__CU_SYSTEM_NOT_READY ||
           code == BRIM__CU_UNKNOWN;
}

/* Counts a call that the lock guards; gives the error that it is to give. */
static brim__cu_result count_call(void)
{
    calls++;
    if (calls != (uint64_t)setting("fail_at", 0))
        return BRIM__CU_SUCCESS;
    brim__cu_result code = (brim__cu_result)setting("fail_code", BRIM__CU_INVALID_VALUE);
    if (kills(code) && current >= 0 && retained[current])
        sticky[current] = code;
    return code;
}

/* A call that needs a context. */
static brim__cu_result count_in_context(void)
{
    brim__cu_result code = count_call();
    if (code != BRIM__CU_SUCCESS)
        return code;
    if (current < 0 || !retained[current]) {
        misuses++;
        return INVALID_CONTEXT;
    }
    return sticky[current];
}

static brim__cu_result misuse(brim__cu_result code)
{
    misuses++;
    return code;
}

/* Opens a function under the lock; `code` is what it gives unless something goes wrong. */
#define BEGIN(counted)                                                                             \
    pthread_mutex_lock(&lock);                                                                     \
    brim__cu_result code = counted
#define END                                                                                        \
    pthread_mutex_unlock(&lock);                                                                   \
    return code
#define WELL (code == BRIM__CU_SUCCESS)

/* ---- objects ---- */

static uint64_t used_bytes(int device)
{
    uint64_t used = 0;
    for (const object *o = objects; o; o = o->next)
        used += o->kind == DEVICE_MEMORY && o->device == device ? o->size : 0;
    return used;
}

/* The range begins anew when none of it is in use. */
static void *take_range(size_t size)
{
    if (!range) {
        void *found = mmap(NULL, range_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        range = found == MAP_FAILED ? NULL : found;
    }
    if (range_blocks == 0)
        range_used = 0;
    if (!range || size > range_bytes - range_used - PAGE_BYTES)
        return NULL;
    void *taken = range + range_used;
    range_used += (size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    range_blocks++;
    return taken;
}

static object *add(object_kind kind, size_t size)
{
    object *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    bool memory = kind == DEVICE_MEMORY || kind == HOST_MEMORY;
    if (kind == DEVICE_MEMORY)
        o->data = take_range(size);
    else if (memory && posix_memalign(&o->data, 256, size))
        o->data = NULL;
    if (memory && !o->data) {
        free(o);
        return NULL;
    }
    if (memory)
        memset(o->data, 0xDB, size); /* a forgotten copy shows */
    o->kind = kind;
    o->device = current;
    o->size = size;
    o->next = objects;
    objects = o;
    return o;
}

static void drop(object **at)
{
    object *o = *at;
    *at = o->next;
    if (o->kind == DEVICE_MEMORY) {
        madvise(o->data, o->size, MADV_DONTNEED);
        range_blocks--;
    } else
        free(o->data);
    free(o);
}

static object **find(object_kind kind, const void *handle)
{
    for (object **at = &objects; *at; at = &(*at)->next) {
        const void *own = (*at)->data ? (*at)->data : *at;
        if ((*at)->kind == kind && own == handle)
            return at;
    }
    return NULL;
}

static brim__cu_result remove_object(brim__cu_result code, object_kind kind, const void *handle)
{
    object **at = find(kind, handle);
    if (!at)
        return misuse(INVALID_HANDLE);
    drop(at);
    return code;
}

static brim__cu_result create(void **out, object_kind kind)
{
    *out = add(kind, 0);
    return *out ? BRIM__CU_SUCCESS : BRIM__CU_OUT_OF_MEMORY;
}

static bool in_range(brim__cu_address address, size_t size)
{
    for (const object *o = objects; o; o = o->next) {
        brim__cu_address base = (uintptr_t)o->data;
        if (base && address >= base && address - base <= o->size &&
            size <= o->size - (address - base))
            return true;
    }
    misuses++;
    return false;
}

/* ---- the driver and its devices ---- */

static brim__cu_result fake_get_error_name(brim__cu_result result, const char **out)
{
    static _Thread_local char name[32];
    snprintf(name, sizeof name, "CUDA_ERROR_%d", result);
    *out = result == BRIM__CU_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : name;
    return BRIM__CU_SUCCESS;
}

static brim__cu_result fake_get_error_string(brim__cu_result result, const char **out)
{
    *out = "an error of the fake driver";
    return BRIM__CU_SUCCESS;
}

static brim__cu_result fake_init(unsigned flags)
{
    return (brim__cu_result)setting("init", device_count() ? 0 : BRIM__CU_NO_DEVICE);
}

static brim__cu_result fake_driver_get_version(int *out)
{
    *out = (int)setting("version", 13000);
    return BRIM__CU_SUCCESS;
}

static brim__cu_result fake_device_get_count(int *out)
{
    BEGIN(count_call());
    *out = device_count();
    END;
}

static brim__cu_result fake_device_get(brim__cu_device *out, int ordinal)
{
    BEGIN(count_call());
    if (WELL && (ordinal < 0 || ordinal >= device_count()))
        code = BRIM__CU_INVALID_DEVICE;
    *out = ordinal;
    END;
}

static brim__cu_result fake_device_get_name(char *out, int size, brim__cu_device device)
{
    BEGIN(count_call());
    if (WELL)
        snprintf(out, (size_t)size, "Fake GPU %d", device);
    END;
}

static brim__cu_result fake_device_total_mem(size_t *out, brim__cu_device device)
{
    BEGIN(count_call());
    *out = (size_t)setting("memory", 1 << 30);
    END;
}

static brim__cu_result fake_device_get_attribute(int *out, int attribute, brim__cu_device device)
{
    BEGIN(count_call());
    long long capability = setting("capability", 90);
    const struct {
        int attribute;
        long long value;
    } known[] = {{BRIM__CU_CLOCK_RATE, 1980000},
                 {BRIM__CU_MULTIPROCESSOR_COUNT, 132},
                 {BRIM__CU_L2_CACHE_SIZE, 60 << 20},
                 {BRIM__CU_CAPABILITY_MAJOR, capability / 10},
                 {BRIM__CU_CAPABILITY_MINOR, capability % 10},
                 {BRIM__CU_COOPERATIVE_LAUNCH, 1},
                 {BRIM__CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 * 1024}};
    for (size_t i = 0; WELL && i < sizeof known / sizeof *known; i++) {
        if (known[i].attribute == attribute)
            *out = (int)known[i].value;
    }
    END;
}

static brim__cu_result fake_device_get_pci_bus_id(char *out, int size, brim__cu_device device)
{
    BEGIN(count_call());
    if (WELL)
        snprintf(out, (size_t)size, "0000:%02X:00.0", device + 1);
    END;
}

/* ---- contexts ---- */

static brim__cu_result fake_primary_ctx_retain(brim__cu_context *out, brim__cu_device device)
{
    BEGIN(count_call());
    if (WELL) {
        retained[device]++;
        *out = &contexts[device];
    }
    END;
}

static brim__cu_result fake_primary_ctx_release(brim__cu_device device)
{
    BEGIN(count_call());
    if (!retained[device])
        code = misuse(INVALID_CONTEXT);
    else if (--retained[device] == 0) {
        for (object **at = &objects; *at;) {
            if ((*at)->device != device) {
                at = &(*at)->next;
                continue;
            }
            leaks += !sticky[device] && (*at)->kind != FUNCTION;
            drop(at);
        }
        sticky[device] = BRIM__CU_SUCCESS;
    }
    END;
}

static brim__cu_result fake_ctx_set_current(brim__cu_context context)
{
    BEGIN(count_call());
    if (WELL) {
        current = context ? (int)((char *)context - contexts) : -1;
        if (context && (current < 0 || current >= DEVICES_MAX || !retained[current]))
            code = misuse(INVALID_CONTEXT);
    }
    END;
}

/* ---- memory ---- */

static brim__cu_result fake_mem_get_info(size_t *out_free, size_t *out_total)
{
    BEGIN(count_in_context());
    if (WELL) {
        *out_total = (size_t)setting("memory", 1 << 30);
        uint64_t used = used_bytes(current);
        *out_free = used < *out_total ? *out_total - used : 0;
    }
    END;
}

static brim__cu_result fake_mem_alloc(brim__cu_address *out, size_t size)
{
    BEGIN(count_in_context());
    if (WELL) {
        uint64_t total = (uint64_t)setting("memory", 1 << 30), used = used_bytes(current);
        object *o = used <= total && size <= total - used ? add(DEVICE_MEMORY, size) : NULL;
        *out = o ? (uintptr_t)o->data : 0;
        code = o ? code : BRIM__CU_OUT_OF_MEMORY;
    }
    END;
}

static brim__cu_result fake_mem_free(brim__cu_address address)
{
    BEGIN(count_in_context());
    code = remove_object(code, DEVICE_MEMORY, (void *)(uintptr_t)address);
    END;
}

static brim__cu_result fake_mem_host_alloc(void **out, size_t size, unsigned flags)
{
    BEGIN(count_in_context());
    if (WELL) {
        object *o = add(HOST_MEMORY, size);
        *out = o ? o->data : NULL;
        code = o ? code : BRIM__CU_OUT_OF_MEMORY;
    }
    END;
}

static brim__cu_result fake_mem_free_host(void *host)
{
    BEGIN(count_in_context());
    code = remove_object(code, HOST_MEMORY, host);
    END;
}

static brim__cu_result fake_mem_host_get_device_pointer(brim__cu_address *out, void *host,
                                                        unsigned flags)
{
    BEGIN(count_in_context());
    if (WELL && !find(HOST_MEMORY, host))
        code = misuse(BRIM__CU_INVALID_VALUE);
    if (WELL)
        *out = (uintptr_t)host;
    END;
}

/* Copies: the device's side must lie in a block, and the stream must be one. */
static brim__cu_result check_copy(brim__cu_result code, brim__cu_address a, brim__cu_address b,
                                  size_t size, brim__cu_stream stream)
{
    if (WELL && !find(STREAM, stream))
        code = misuse(INVALID_HANDLE);
    if (WELL && (!in_range(a, size) || !in_range(b, size)))
        code = sticky[current] = BRIM__CU_ILLEGAL_ADDRESS;
    return code;
}

static brim__cu_result fake_memcpy_htod_async(brim__cu_address to, const void *from, size_t size,
                                              brim__cu_stream stream)
{
    BEGIN(check_copy(count_in_context(), to, to, size, stream));
    if (WELL)
        memcpy((void *)(uintptr_t)to, from, size);
    END;
}

static brim__cu_result fake_memcpy_dtoh_async(void *to, brim__cu_address from, size_t size,
                                              brim__cu_stream stream)
{
    BEGIN(check_copy(count_in_context(), from, from, size, stream));
    if (WELL)
        memcpy(to, (const void *)(uintptr_t)from, size);
    END;
}

/* What a copy of ranges that overlap gives is undefined, so that it is a misuse. */
static brim__cu_result fake_memcpy_dtod_async(brim__cu_address to, brim__cu_address from,
                                              size_t size, brim__cu_stream stream)
{
    BEGIN(check_copy(count_in_context(), to, from, size, stream));
    if (WELL && to < from + size && from < to + size)
        code = misuse(BRIM__CU_INVALID_VALUE);
    if (WELL)
        memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, size);
    END;
}

static brim__cu_result fake_memset_d32_async(brim__cu_address to, unsigned word, size_t count,
                                             brim__cu_stream stream)
{
    BEGIN(check_copy(count_in_context(), to, to, count * sizeof word, stream));
    for (size_t i = 0; WELL && i < count; i++)
        memcpy((char *)(uintptr_t)to + i * sizeof word, &word, sizeof word);
    END;
}

/* ---- streams and events ---- */

static brim__cu_result fake_stream_create(brim__cu_stream *out, unsigned flags)
{
    BEGIN(count_in_context());
    if (WELL)
        code = create(out, STREAM);
    END;
}

static brim__cu_result fake_stream_destroy(brim__cu_stream stream)
{
    BEGIN(count_in_context());
    code = remove_object(code, STREAM, stream);
    END;
}

static brim__cu_result fake_stream_synchronize(brim__cu_stream stream)
{
    BEGIN(count_in_context());
    if (WELL && !find(STREAM, stream))
        code = misuse(INVALID_HANDLE);
    END;
}

static brim__cu_result fake_stream_query(brim__cu_stream stream)
{
    BEGIN(count_in_context());
    if (WELL && !find(STREAM, stream))
        code = misuse(INVALID_HANDLE);
    if (WELL && setting("busy", 0))
        code = BRIM__CU_NOT_READY;
    END;
}

static brim__cu_result fake_event_create(brim__cu_event *out, unsigned flags)
{
    BEGIN(count_in_context());
    if (WELL)
        code = create(out, EVENT);
    END;
}

static brim__cu_result fake_event_destroy(brim__cu_event event)
{
    BEGIN(count_in_context());
    code = remove_object(code, EVENT, event);
    END;
}

static brim__cu_result fake_event_record(brim__cu_event event, brim__cu_stream stream)
{
    BEGIN(count_in_context());
    if (WELL && (!find(EVENT, event) || !find(STREAM, stream)))
        code = misuse(INVALID_HANDLE);
    END;
}

static brim__cu_result fake_event_elapsed_time(float *out, brim__cu_event from, brim__cu_event to)
{
    BEGIN(count_in_context());
    if (WELL && (!find(EVENT, from) || !find(EVENT, to)))
        code = misuse(INVALID_HANDLE);
    *out = 1.0f;
    END;
}

/* ---- modules and launches ---- */

static brim__cu_result fake_module_load_data_ex(brim__cu_module *out, const void *image,
                                                unsigned option_count, int *options, void **values)
{
    BEGIN(count_in_context());
    if (WELL)
        code = (brim__cu_result)setting("image", BRIM__CU_SUCCESS);
    for (unsigned i = 0; !WELL && i < option_count; i++) {
        if (options[i] == BRIM__CU_JIT_ERROR_LOG_BUFFER)
            snprintf(values[i], 16, "line 1\nline 2\n");
    }
    if (WELL)
        code = create(out, MODULE);
    END;
}

static brim__cu_result fake_module_unload(brim__cu_module module)
{
    BEGIN(count_in_context());
    code = remove_object(code, MODULE, module);
    END;
}

/* Functions are of the context, not of their module: enough for tests. */
static brim__cu_result fake_module_get_function(brim__cu_function *out, brim__cu_module module,
                                                const char *name)
{
    BEGIN(count_in_context());
    if (WELL && !find(MODULE, module))
        code = misuse(INVALID_HANDLE);
    if (WELL && strncmp(name, "missing", 7) == 0)
        code = BRIM__CU_NOT_FOUND;
    if (WELL)
        code = create(out, FUNCTION);
    END;
}

static brim__cu_result check_function(brim__cu_result code, brim__cu_function function)
{
    return WELL && !find(FUNCTION, function) ? misuse(INVALID_HANDLE) : code;
}

static brim__cu_result fake_func_set_attribute(brim__cu_function function, int attribute, int value)
{
    BEGIN(check_function(count_in_context(), function));
    END;
}

static brim__cu_result fake_func_get_param_info(brim__cu_function function, size_t index,
                                                size_t *out_offset, size_t *out_size)
{
    BEGIN(check_function(count_in_context(), function));
    *out_offset = 0;
    *out_size = (size_t)setting("params", 0);
    END;
}

static brim__cu_result fake_occupancy_max_blocks(int *out, brim__cu_function function, int threads,
                                                 size_t shared_bytes)
{
    BEGIN(check_function(count_in_context(), function));
    *out = 1;
    END;
}

static brim__cu_result check_launch(brim__cu_result code, brim__cu_function function,
                                    unsigned threads, brim__cu_stream stream)
{
    code = check_function(code, function);
    if (WELL && !find(STREAM, stream))
        code = misuse(INVALID_HANDLE);
    if (WELL && (threads == 0 || threads > 1024))
        code = BRIM__CU_INVALID_VALUE;
    return code;
}

static brim__cu_result fake_launch_kernel(brim__cu_function function, unsigned x, unsigned y,
                                          unsigned z, unsigned threads, unsigned threads_y,
                                          unsigned threads_z, unsigned shared_bytes,
                                          brim__cu_stream stream, void **arguments, void **extra)
{
    BEGIN(check_launch(count_in_context(), function, threads, stream));
    if (WELL && kernel)
        kernel(arguments ? arguments[0] : NULL);
    END;
}

static brim__cu_result fake_launch_cooperative_kernel(brim__cu_function function, unsigned x,
                                                      unsigned y, unsigned z, unsigned threads,
                                                      unsigned threads_y, unsigned threads_z,
                                                      unsigned shared_bytes, brim__cu_stream stream,
                                                      void **arguments)
{
    BEGIN(check_launch(count_in_context(), function, threads, stream));
    if (WELL && x > 132)
        code = BRIM__CU_COOPERATIVE_LAUNCH_TOO_LARGE;
    if (WELL && kernel)
        kernel(arguments ? arguments[0] : NULL);
    END;
}

/* ---- the door ---- */

static void *address_of(const char *symbol, int version)
{
    void *found = NULL;
#define MATCH(field, text, since, required, parameters)                                            \
    if (strcmp(symbol, text) == 0 && version >= (since)) {                                         \
        brim__cu_result(*function) parameters = fake_##field;                                      \
        memcpy(&found, &function, sizeof found);                                                   \
    }
    BRIM__CU_FUNCTION_LIST(MATCH)
#undef MATCH
    return found;
}

EXPORT brim__cu_result cuDriverGetVersion(int *out);
brim__cu_result cuDriverGetVersion(int *out)
{
    return fake_driver_get_version(out);
}

EXPORT brim__cu_get_proc_address cuGetProcAddress_v2;
brim__cu_result cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags,
                                    int *status)
{
    const char *without = setting_text("without");
    bool hidden = without && strncmp(without, symbol, strlen(symbol)) == 0;
    if (strcmp(symbol, "cuFuncGetParamInfo") == 0 && !setting_text("params"))
        hidden = true;
    *out = hidden ? NULL : address_of(symbol, version);
    *status = *out ? 0 : 1;
    return *out ? BRIM__CU_SUCCESS : BRIM__CU_NOT_FOUND;
}

/* NVML in the same file: BRIM_LIBNVML may name it too. */
EXPORT int nvmlInit_v2(void);
EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned size);
int nvmlInit_v2(void)
{
    return 0;
}

int nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    snprintf(out, size, "123.45.67");
    return 0;
}
