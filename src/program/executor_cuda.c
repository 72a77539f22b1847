/* executor_cuda.c: a program as one persistent kernel: a lane a multiprocessor.
 *
 * Memory. Packets lie in one arena: two parities, some replicas of each, a set being all packet
 * buffers one after another. Other buffers that nobody has bound share a second arena. Inputs have a
 * copy on the host that is sent at every start; mapped buffers lie in pinned host memory.
 *
 * A run is one launch: packets are emptied, control words zeroed, inputs sent, all on one stream.
 * While it runs the host looks at words in mapped memory; when a lane has waited for too long the
 * kernel ends by itself and says who waited for what. */
#include "program/executor_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/cuda.h"
#include "kernels/cuda/images.h"
#include "kernels/sample.h"
#include "program/cuda_encode.h"

enum {
    PLACE_BYTES = 256,
    WORK_MAX = 80 << 10,    /* of shared memory that input may take from the ring */
    STATIC_RESERVE = 1024,  /* of shared memory that the system keeps for a block */
    RING_SLOTS_MIN = 4, /* an item of attention holds as many */
    WATCHDOG_MS = 2000,
    WATCHDOG_MS_MAX = 1000000, /* the kernel counts in 31 bits of microseconds */
    LOOK_NS = 20000,        /* between two looks at the host's words */
    FINISHED_LOOKS = 256,   /* looks after which the stream is asked too */
    EVENTS_MAX = 1 << 20,
};

struct brim__cuda_run {
    brim__cuda_shape shape;
    const brim__cuda_image *image;
    brim__cuda_module *module;
    brim__cuda_launch launch;
    brim__res_params params;
    uint32_t replicas;

    uint64_t *address; /* by buffer: packets: offset in a set; 0: not placed */
    bool *packet;
    uint64_t *tensor;
    void **host; /* by buffer: the caller's or our copy on the host; NULL: none */
    bool *host_owned, *mapped;
    brim_device_memory **tensor_owned; /* tiles that came from host memory */
    uint64_t packet_stride;
    brim_device_memory *packets, *plain, *lists, *control, *waits;
    brim__res_mail *mail;
    brim__cuda_address mail_address;
    bool placed; /* memory is there and lists are sent */

    brim_device_memory *events, *clocks;
    brim_trace_event *trace; /* of the lane asked for last */
    uint64_t trace_base_ns;
    uint64_t start_epoch;
    uint32_t planted_lane, planted_epoch, delays;
};

static const char *const roles[] = {
#define ROLE_TEXT(name, text) text,
    BRIM__RES_ROLE_LIST(ROLE_TEXT)
#undef ROLE_TEXT
};

static uint64_t rounded(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static uint64_t whole_bytes(const brim_buffer_desc *b)
{
    return brim__buffer_copy_bytes(b) * (b->parity ? 2 : 1);
}

/* Of the host's copy: what its owner need have. */
static uint64_t host_bytes(const brim_buffer_desc *b)
{
    return b->parity ? whole_bytes(b) : b->size;
}

/* ---- creation ---- */

static void place_packets(brim_executor *x)
{
    struct brim__cuda_run *c = x->cuda;
    const brim_program *p = x->program;
    for (size_t i = 0; i < p->instruction_count; i++)
        for (unsigned n = 0; n < p->instructions[i].access_count; n++)
            if (p->instructions[i].accesses[n].flags & BRIM_ACCESS_PACKET)
                c->packet[p->instructions[i].accesses[n].buffer] = true;
    for (size_t b = 0; b < p->buffer_count; b++)
        if (c->packet[b]) {
            c->address[b] = c->packet_stride;
            c->packet_stride += rounded(p->buffers[b].size, PLACE_BYTES);
        }
    c->packet_stride += PLACE_BYTES;
}

static brim_status find_image(brim_executor *x)
{
    struct brim__cuda_run *c = x->cuda;
    const brim__cuda_facts *facts = brim__cuda_facts_of(x->desc.device);
    char name[48];
    snprintf(name, sizeof name, "resident_%s_hs%u_r%u",
             c->shape.type == BRIM_DTYPE_BF16 ? "bf16" : "f16", c->shape.head_size, c->shape.rows);
    BRIM_FAIL_IF(brim__cuda_image_count == 0, UNSUPPORTED, "cuda.image",
                 "this build of Brim has no device code (it was built where nvcc was not found); "
                 "use --device cpu, or build it with the CUDA toolkit 12.4 or later");
    c->image = brim__cuda_image_find(name, facts->capability, x->desc.generic_image);
    BRIM_FAIL_IF(!c->image, UNSUPPORTED, "cuda.image",
                 "there is no image %s for compute capability %d.%d; use --device cpu", name,
                 facts->capability / 10, facts->capability % 10);
    BRIM_TRY(brim__cuda_module_load(&c->module, x->desc.device, c->image->data, c->image->name));
    return brim__cuda_module_function(&c->launch.function, c->module, "brim_resident");
}

static brim_status size_shared(brim_executor *x)
{
    struct brim__cuda_run *c = x->cuda;
    const brim__cuda_facts *facts = brim__cuda_facts_of(x->desc.device);
    uint32_t one = c->shape.rows == 1;
    uint32_t fixed = one ? RES_SHARED_1 : RES_SHARED_8;
    uint32_t block = one ? RES_X_BLOCK_1 : RES_X_BLOCK_8;
    uint32_t keep = c->shape.keep_blocks;
    while (keep > 1 && keep * block > WORK_MAX)
        keep--;
    keep = keep < c->shape.keep_least ? c->shape.keep_least : keep;
    uint32_t attention = 8 * c->shape.group * (c->shape.head_size + 8) * 4;
    uint32_t work = keep * block > attention ? keep * block : attention;
    work = rounded(work < RES_WORK_MIN ? RES_WORK_MIN : work, 1024);
    uint32_t room = facts->shared_bytes_max - STATIC_RESERVE;
    uint32_t ring = room > fixed + work ? room - fixed - work : 0;
    if (x->desc.ring_bytes && x->desc.ring_bytes < ring)
        ring = x->desc.ring_bytes;
    uint32_t slots = ring / RES_SLOT_BYTES;
    slots = slots > RES_SLOTS_MAX ? RES_SLOTS_MAX : slots;
    BRIM_FAIL_IF(slots < RING_SLOTS_MIN, UNSUPPORTED, "cuda.shared",
                 "a block of this device has %u bytes of shared memory; %u are needed",
                 facts->shared_bytes_max,
                 STATIC_RESERVE + fixed + work + RING_SLOTS_MIN * RES_SLOT_BYTES);
    c->params.ring_slots = slots;
    c->params.keep_blocks = keep;
    c->params.work_bytes = work;
    c->launch.blocks = x->program->lane_count;
    c->launch.threads = RES_WARPS * 32;
    c->launch.shared_bytes = slots * RES_SLOT_BYTES + fixed + work;
    c->launch.cooperative = true;
    uint32_t most;
    BRIM_TRY(brim__cuda_blocks_max(&most, x->desc.device, &c->launch));
    BRIM_FAIL_IF(c->launch.blocks > most, UNSUPPORTED, "cuda.lanes",
                 "the program has %u lanes; this device runs %u at the same time", c->launch.blocks,
                 most);
    return BRIM_OK;
}

/* The two settings that were best for few and for many bytes a stage (bench/results). */
static void set_flow(brim__res_params *p)
{
    p->flow_high = 4;
    p->flow_mid = 3;
    p->flow_low = 2;
    p->flow_few = 1;
    p->flow_some = 7;
    const char *text = getenv("BRIM_CUDA_FLOW"); /* high,mid,low,few,some: for measurements */
    if (text)
        sscanf(text, "%u,%u,%u,%u,%u", &p->flow_high, &p->flow_mid, &p->flow_low, &p->flow_few,
               &p->flow_some);
}

static brim_status create_parts(brim_executor *x)
{
    struct brim__cuda_run *c = x->cuda;
    const brim_program *p = x->program;
    BRIM_TRY(brim__cuda_shape_of(&c->shape, p));
    BRIM_CALLOC(x->ctx, c->address, p->buffer_count + 1);
    BRIM_CALLOC(x->ctx, c->packet, p->buffer_count + 1);
    BRIM_CALLOC(x->ctx, c->tensor, p->tensor_count + 1);
    BRIM_CALLOC(x->ctx, c->host, p->buffer_count + 1);
    BRIM_CALLOC(x->ctx, c->host_owned, p->buffer_count + 1);
    BRIM_CALLOC(x->ctx, c->mapped, p->buffer_count + 1);
    BRIM_CALLOC(x->ctx, c->tensor_owned, p->tensor_count + 1);
    c->replicas = c->shape.rows == 1 ? RES_REPLICAS_1 : RES_REPLICAS_8;
    BRIM_TRY(find_image(x));
    BRIM_TRY(size_shared(x));
    place_packets(x);
    set_flow(&c->params);
    void *host;
    BRIM_TRY(brim__cuda_mapped_alloc(&host, &c->mail_address, x->desc.device,
                                     sizeof(brim__res_mail)));
    c->mail = host;
    return BRIM_OK;
}

brim_status brim__cuda_executor_create(brim_executor *x)
{
    BRIM_FAIL_IF(!x->desc.device, USAGE, "executor.device",
                 "a CUDA executor needs a CUDA device in its description");
    brim_device_info info;
    BRIM_TRY(brim_device_query(&info, x->desc.device));
    BRIM_FAIL_IF(info.kind != BRIM_DEVICE_CUDA, USAGE, "executor.device",
                 "the device of a CUDA executor is of kind '%s'", brim_device_kind_name(info.kind));
    BRIM_FAIL_IF(x->desc.watchdog_ms > WATCHDOG_MS_MAX, USAGE, "executor.watchdog",
                 "a watchdog of %u ms; at most %d", x->desc.watchdog_ms, WATCHDOG_MS_MAX);
    BRIM_CALLOC(x->ctx, x->cuda, 1);
    if (x->desc.watchdog_ms == 0)
        x->desc.watchdog_ms = WATCHDOG_MS;
    return create_parts(x);
}

void brim__cuda_executor_destroy(brim_executor *x)
{
    struct brim__cuda_run *c = x->cuda;
    const brim_program *p = x->program;
    brim_device *device = x->desc.device;
    if (atomic_load(&x->running))
        brim__cuda_synchronize(device, BRIM__CUDA_PROGRAMS);
    for (size_t b = 0; c->host && c->host_owned && c->mapped && b < p->buffer_count; b++) {
        if (c->mapped[b])
            brim__cuda_mapped_free(device, c->host[b]);
        else if (c->host_owned[b])
            brim__free(x->ctx, c->host[b]);
    }
    for (size_t t = 0; c->tensor_owned && t < p->tensor_count; t++)
        brim_device_free(c->tensor_owned[t]);
    if (c->mail)
        brim__cuda_mapped_free(device, c->mail);
    brim_device_free(c->packets);
    brim_device_free(c->plain);
    brim_device_free(c->lists);
    brim_device_free(c->control);
    brim_device_free(c->waits);
    brim_device_free(c->events);
    brim_device_free(c->clocks);
    if (c->module)
        brim__cuda_module_unload(c->module);
    brim__free(x->ctx, c->address);
    brim__free(x->ctx, c->packet);
    brim__free(x->ctx, c->tensor);
    brim__free(x->ctx, c->host);
    brim__free(x->ctx, c->host_owned);
    brim__free(x->ctx, c->mapped);
    brim__free(x->ctx, c->tensor_owned);
    brim__free(x->ctx, c->trace);
    brim__free(x->ctx, c);
    x->cuda = NULL;
}

/* ---- binding ---- */

static brim_status check_memory(brim_executor *x, brim_device_memory *memory, uint64_t offset,
                                uint64_t size)
{
    brim_device_info info;
    BRIM_TRY(brim_device_query(&info, brim_device_memory_home(memory)));
    BRIM_FAIL_IF(info.kind != BRIM_DEVICE_CUDA || offset % PLACE_BYTES != 0 ||
                     offset > brim_device_memory_size(memory) ||
                     size > brim_device_memory_size(memory) - offset,
                 USAGE, "executor.bind",
                 "%llu bytes at offset %llu: memory of the device, %d bytes aligned, of %zu bytes",
                 (unsigned long long)size, (unsigned long long)offset, PLACE_BYTES,
                 brim_device_memory_size(memory));
    return BRIM_OK;
}

brim_status brim__cuda_executor_bind_memory(brim_executor *x, uint32_t buffer,
                                            brim_device_memory *memory, uint64_t offset)
{
    BRIM_TRY(check_memory(x, memory, offset, whole_bytes(&x->program->buffers[buffer])));
    x->cuda->address[buffer] = brim__cuda_address_of(memory) + offset;
    x->cuda->placed = false;
    return BRIM_OK;
}

brim_status brim__cuda_executor_bind_tensor(brim_executor *x, uint32_t tensor,
                                            brim_device_memory *memory, uint64_t offset)
{
    BRIM_TRY(check_memory(x, memory, offset, x->program->tensors[tensor].tiling.bytes));
    x->cuda->tensor[tensor] = brim__cuda_address_of(memory) + offset;
    x->cuda->placed = false;
    return BRIM_OK;
}

brim_status brim__cuda_executor_bind_host(brim_executor *x, uint32_t buffer, void *memory)
{
    struct brim__cuda_run *c = x->cuda;
    brim_buffer_role role = x->program->buffers[buffer].role;
    BRIM_FAIL_IF(role != BRIM_BUFFER_INPUT && role != BRIM_BUFFER_CONST, USAGE, "executor.bind",
                 "buffer '%s' is neither input nor constant: host memory can't be it on a device",
                 x->program->buffers[buffer].name);
    BRIM_FAIL_IF(x->program->buffers[buffer].mapped, USAGE, "executor.bind",
                 "buffer '%s' is mapped: the executor has the memory",
                 x->program->buffers[buffer].name);
    if (c->host_owned[buffer])
        brim__free(x->ctx, c->host[buffer]);
    c->host_owned[buffer] = false;
    c->host[buffer] = memory;
    c->placed = false;
    return BRIM_OK;
}

brim_status brim__cuda_executor_bind_host_tensor(brim_executor *x, uint32_t tensor,
                                                 const void *tiles)
{
    struct brim__cuda_run *c = x->cuda;
    uint64_t bytes = x->program->tensors[tensor].tiling.bytes;
    brim_device_free(c->tensor_owned[tensor]);
    c->tensor_owned[tensor] = NULL;
    BRIM_TRY(brim_device_alloc(&c->tensor_owned[tensor], x->desc.device, bytes));
    BRIM_TRY(brim_device_write(c->tensor_owned[tensor], 0, tiles, bytes));
    c->tensor[tensor] = brim__cuda_address_of(c->tensor_owned[tensor]);
    c->placed = false;
    return BRIM_OK;
}

/* ---- memory and lists ---- */

brim_status brim__cuda_executor_place(brim_executor *x)
{
    struct brim__cuda_run *c = x->cuda;
    const brim_program *p = x->program;
    for (size_t b = 0; b < p->buffer_count; b++) {
        const brim_buffer_desc *desc = &p->buffers[b];
        if (desc->mapped && !c->mapped[b]) {
            brim__cuda_address address;
            BRIM_TRY(brim__cuda_mapped_alloc(&c->host[b], &address, x->desc.device,
                                             whole_bytes(desc)));
            c->mapped[b] = true;
            c->address[b] = address;
        } else if (desc->role == BRIM_BUFFER_INPUT && !c->host[b]) {
            c->host[b] = brim__calloc(x->ctx, 1, whole_bytes(desc));
            if (!c->host[b])
                return BRIM_NO_MEMORY;
            c->host_owned[b] = true;
        }
    }
    return BRIM_OK;
}

/* One allocation for what nobody has bound. */
static brim_status place_plain(brim_executor *x)
{
    struct brim__cuda_run *c = x->cuda;
    const brim_program *p = x->program;
    uint64_t total = 0;
    for (size_t b = 0; b < p->buffer_count; b++)
        if (!c->packet[b] && !c->address[b])
            total += rounded(whole_bytes(&p->buffers[b]), PLACE_BYTES);
    uint64_t rows = c->shape.rows, tiles = ((c->shape.vocab + 7) / 8 + 3) / 4 * 4;
    uint64_t scratch = rounded(brim__sample_scratch_bytes(c->shape.vocab) + 64, PLACE_BYTES);
    uint64_t own = rounded(4 * rows, PLACE_BYTES) + rounded(4 * rows * tiles, PLACE_BYTES) +
                   rows * scratch;
    BRIM_TRY(brim_device_alloc(&c->plain, x->desc.device, total + own));
    uint64_t at = brim__cuda_address_of(c->plain);
    BRIM_TRY(brim__cuda_fill_async(x->desc.device, BRIM__CUDA_PROGRAMS, at, 0, total + own));
    for (size_t b = 0; b < p->buffer_count; b++)
        if (!c->packet[b] && !c->address[b]) {
            c->address[b] = at;
            at += rounded(whole_bytes(&p->buffers[b]), PLACE_BYTES);
        }
    c->params.sampled = (uint32_t *)at;
    c->params.tile_max = (float *)(at + rounded(4 * rows, PLACE_BYTES));
    c->params.sample_scratch =
        (char *)(at + rounded(4 * rows, PLACE_BYTES) + rounded(4 * rows * tiles, PLACE_BYTES));
    c->params.sample_scratch_bytes = scratch;
    return BRIM_OK;
}

static brim_status find_base(brim_executor *x)
{
    struct brim__cuda_run *c = x->cuda;
    const brim_program *p = x->program;
    uint64_t low = UINT64_MAX, high = 0;
    for (size_t b = 0; b < p->buffer_count; b++)
        if (!c->packet[b] && !c->mapped[b]) {
            low = c->address[b] < low ? c->address[b] : low;
            uint64_t end = c->address[b] + whole_bytes(&p->buffers[b]);
            high = end > high ? end : high;
        }
    for (size_t t = 0; t < p->tensor_count; t++) {
        low = c->tensor[t] < low ? c->tensor[t] : low;
        uint64_t end = c->tensor[t] + p->tensors[t].tiling.bytes;
        high = end > high ? end : high;
    }
    BRIM_FAIL_IF((high - low) / PLACE_BYTES >= UINT32_MAX, LIMIT, "cuda.span",
                 "the program's memory spans %llu bytes of addresses; 2^40 are possible",
                 (unsigned long long)(high - low));
    c->params.base = (char *)low;
    return BRIM_OK;
}

static brim_status send_lists(brim_executor *x)
{
    struct brim__cuda_run *c = x->cuda;
    const brim_program *p = x->program;
    uint32_t *words, total = 0, lanes = p->lane_count;
    for (uint32_t l = 0; l < lanes; l++)
        total += brim__cuda_list_count(p, l);
    size_t firsts = rounded(4 * (uint64_t)(lanes + 1), PLACE_BYTES);
    size_t bytes = firsts + (size_t)total * 4 * RI_WORDS;
    BRIM_CALLOC(x->ctx, words, bytes / 4);
    brim__cuda_places places = {(uint64_t)c->params.base, c->address, c->packet, c->tensor};
    uint32_t *lists = words + firsts / 4;
    for (uint32_t l = 0, at = 0; l < lanes; l++) {
        brim__cuda_encode_lane(lists + (size_t)at * RI_WORDS, p, &c->shape, &places, l);
        at += brim__cuda_list_count(p, l);
        words[l + 1] = at;
    }
    brim_device_free(c->lists);
    c->lists = NULL;
    brim_status status = brim_device_alloc(&c->lists, x->desc.device, bytes);
    if (status == BRIM_OK)
        status = brim_device_write(c->lists, 0, words, bytes);
    brim__free(x->ctx, words);
    BRIM_TRY(status);
    c->params.list_first = (const uint32_t *)brim__cuda_address_of(c->lists);
    c->params.lists = c->params.list_first + firsts / 4;
    return BRIM_OK;
}

static brim_status place_trace(brim_executor *x)
{
    struct brim__cuda_run *c = x->cuda;
    uint32_t lanes = x->program->lane_count, events = x->desc.trace_events;
    if (!events || c->events)
        return BRIM_OK;
    events = events < EVENTS_MAX ? events : EVENTS_MAX;
    x->desc.trace_events = events;
    BRIM_TRY(brim_device_alloc(&c->events, x->desc.device,
                               (size_t)lanes * events * sizeof(brim__res_event)));
    BRIM_TRY(brim_device_alloc(&c->clocks, x->desc.device, lanes * sizeof(brim__res_clock)));
    BRIM_CALLOC(x->ctx, c->trace, events);
    c->params.events = (brim__res_event *)brim__cuda_address_of(c->events);
    c->params.clocks = (brim__res_clock *)brim__cuda_address_of(c->clocks);
    c->params.event_capacity = events;
    return BRIM_OK;
}

static void fill_params(brim_executor *x)
{
    struct brim__cuda_run *c = x->cuda;
    const brim__cuda_shape *s = &c->shape;
    brim__res_params *p = &c->params;
    uint64_t step = c->address[s->step];
    p->packets = (char *)brim__cuda_address_of(c->packets);
    p->packet_stride = c->packet_stride;
    p->step[0] = (uint32_t *)step;
    p->step[1] = (uint32_t *)(step + brim__buffer_copy_bytes(&x->program->buffers[s->step]));
    p->tables = (const uint32_t *)c->address[s->tables];
    p->sample_params = (const void *)c->address[s->params];
    p->history = (uint32_t *)c->address[s->history];
    p->ends = (const uint32_t *)c->address[s->ends];
    p->mail = (const uint32_t *)c->address[s->mail];
    p->result = (void *)c->address[s->result];
    p->logits = (float *)c->address[s->logits];
    p->rope = (const float *)c->address[s->rope];
    p->control = (brim__res_control *)brim__cuda_address_of(c->control);
    p->host = (brim__res_mail *)c->mail_address;
    p->waits = (brim__res_wait *)brim__cuda_address_of(c->waits);
    p->lanes = x->program->lane_count;
    p->rows = s->rows;
    p->kv_heads = s->kv_heads;
    p->group = s->group;
    p->head_size = s->head_size;
    p->slots = s->slots;
    p->context = s->context;
    p->blocks_max = s->blocks_max;
    p->blocks = s->blocks;
    p->vocab = s->vocab;
    p->head_tiles = ((s->vocab + 7) / 8 + 3) / 4 * 4;
    p->rope_halves = s->rope_halves;
    p->scale = s->scale;
    p->watchdog_units = (uint32_t)((uint64_t)x->desc.watchdog_ms * 1000000 >> 10);
}

static brim_status place_all(brim_executor *x)
{
    struct brim__cuda_run *c = x->cuda;
    if (c->placed)
        return BRIM_OK;
    BRIM_TRY(brim__cuda_executor_place(x));
    if (!c->packets)
        BRIM_TRY(brim_device_alloc(&c->packets, x->desc.device,
                                   2 * (uint64_t)c->replicas * c->packet_stride));
    if (!c->control)
        BRIM_TRY(brim_device_alloc(&c->control, x->desc.device, sizeof(brim__res_control)));
    if (!c->waits)
        BRIM_TRY(brim_device_alloc(&c->waits, x->desc.device,
                                   sizeof(brim__res_wait) * RES_WARPS * x->program->lane_count));
    if (!c->plain)
        BRIM_TRY(place_plain(x));
    BRIM_TRY(find_base(x));
    BRIM_TRY(send_lists(x));
    BRIM_TRY(place_trace(x));
    fill_params(x);
    for (size_t b = 0; b < x->program->buffer_count; b++)
        if (c->host[b] && x->program->buffers[b].role == BRIM_BUFFER_CONST)
            BRIM_TRY(brim__cuda_write_async(x->desc.device, BRIM__CUDA_PROGRAMS, c->address[b],
                                            c->host[b], host_bytes(&x->program->buffers[b])));
    c->placed = true;
    return BRIM_OK;
}

void *brim__cuda_executor_buffer(brim_executor *x, uint32_t buffer, uint64_t epoch)
{
    struct brim__cuda_run *c = x->cuda;
    if (brim__cuda_executor_place(x) != BRIM_OK || !c->host[buffer])
        return NULL;
    const brim_buffer_desc *desc = &x->program->buffers[buffer];
    return (char *)c->host[buffer] +
           (desc->parity && epoch % 2 ? brim__buffer_copy_bytes(desc) : 0);
}

brim_status brim__cuda_executor_read(brim_executor *x, void *out, uint32_t buffer, uint64_t epoch,
                                     uint64_t offset, uint64_t size)
{
    struct brim__cuda_run *c = x->cuda;
    const brim_buffer_desc *desc = &x->program->buffers[buffer];
    BRIM_TRY(place_all(x));
    if (c->mapped[buffer]) {
        memcpy(out, (char *)brim__cuda_executor_buffer(x, buffer, epoch) + offset, size);
        return BRIM_OK;
    }
    uint64_t from = c->address[buffer];
    if (c->packet[buffer])
        from += brim__cuda_address_of(c->packets) + epoch % 2 * c->replicas * c->packet_stride;
    else if (desc->parity && epoch % 2)
        from += brim__buffer_copy_bytes(desc);
    return brim__cuda_read_now(out, x->desc.device, from + offset, size);
}

/* ---- running ---- */

void brim__cuda_executor_plant(brim_executor *x, uint32_t lane, uint32_t epoch, uint32_t delays)
{
    x->cuda->planted_lane = lane;
    x->cuda->planted_epoch = epoch;
    x->cuda->delays = delays;
}

brim_status brim__cuda_executor_start(brim_executor *x)
{
    struct brim__cuda_run *c = x->cuda;
    brim_device *device = x->desc.device;
    const brim_program *p = x->program;
    for (size_t t = 0; t < p->tensor_count; t++)
        BRIM_FAIL_IF(!c->tensor[t], STATE, "executor.tensor", "tensor '%s' is not bound",
                     p->tensors[t].desc.name);
    BRIM_TRY(place_all(x));
    memset((void *)c->mail, 0, sizeof *c->mail);
    BRIM_TRY(brim__cuda_fill_async(device, BRIM__CUDA_PROGRAMS,
                                   brim__cuda_address_of(c->packets), BRIM_PACKET_EMPTY,
                                   2 * (uint64_t)c->replicas * c->packet_stride));
    BRIM_TRY(brim__cuda_fill_async(device, BRIM__CUDA_PROGRAMS,
                                   brim__cuda_address_of(c->control), 0,
                                   sizeof(brim__res_control)));
    BRIM_TRY(brim__cuda_fill_async(device, BRIM__CUDA_PROGRAMS, brim__cuda_address_of(c->waits), 0,
                                   sizeof(brim__res_wait) * RES_WARPS * p->lane_count));
    for (size_t b = 0; b < p->buffer_count; b++)
        if (p->buffers[b].role == BRIM_BUFFER_INPUT && !c->mapped[b])
            BRIM_TRY(brim__cuda_write_async(device, BRIM__CUDA_PROGRAMS, c->address[b], c->host[b],
                                            host_bytes(&p->buffers[b])));
    uint64_t epoch = atomic_load(&x->epoch), limit = x->end_epoch - epoch;
    c->start_epoch = epoch;
    c->params.epoch = (uint32_t)epoch;
    c->params.limit = limit > INT32_MAX / 2 ? INT32_MAX / 2 : (uint32_t)limit;
    c->params.planted_lane = c->planted_lane;
    c->params.planted_epoch = c->planted_epoch;
    c->params.delays = c->delays;
    return brim__cuda_launch_kernel(device, &c->launch, &c->params, sizeof c->params);
}

static void note_progress(brim_executor *x)
{
    uint64_t epoch = x->cuda->start_epoch + x->cuda->mail->done;
    atomic_thread_fence(memory_order_acquire);
    if (epoch > atomic_load(&x->epoch))
        atomic_store(&x->epoch, epoch);
}

bool brim__cuda_executor_wait_epoch(brim_executor *x, uint64_t epoch, uint64_t timeout_ns)
{
    uint64_t deadline = timeout_ns ? brim__now_ns() + timeout_ns : UINT64_MAX;
    for (uint32_t looks = 1;; looks++) {
        note_progress(x);
        if (atomic_load(&x->epoch) > epoch)
            return true;
        if (!atomic_load(&x->running) || brim__now_ns() >= deadline)
            return false;
        bool finished = false;
        if (looks % FINISHED_LOOKS == 0 &&
            (brim__cuda_finished(&finished, x->desc.device, BRIM__CUDA_PROGRAMS) != BRIM_OK ||
             finished)) {
            note_progress(x);
            return atomic_load(&x->epoch) > epoch;
        }
        struct timespec pause = {0, LOOK_NS};
        nanosleep(&pause, NULL);
    }
}

/* Whoever waits at the earliest instruction waits for the cause; the others wait for it. Builders add
 * instructions stage by stage, so their numbers are in the order of dependence. */
static bool earlier(const brim__res_wait *a, const brim__res_wait *b)
{
    if (!b || a->epoch != b->epoch)
        return !b || a->epoch < b->epoch;
    return a->instruction < b->instruction;
}

static brim_status describe_hang(brim_executor *x, const brim__res_wait *waits)
{
    const brim_program *p = x->program;
    const brim__res_wait *first = NULL;
    uint32_t at = 0, lanes = 0;
    for (uint32_t i = 0; i < p->lane_count * RES_WARPS; i++) {
        const brim__res_wait *w = &waits[i];
        if (!w->role || w->role > RES_WAIT_COUNT || w->instruction > p->instruction_count ||
            i % RES_WARPS == RES_CONSUMERS + 2)
            continue;
        lanes += i % RES_WARPS == 0;
        if (earlier(w, first)) {
            first = w;
            at = i;
        }
    }
    BRIM_FAIL_IF(!first, SYSTEM, "run.hung", "the run gave up after %u ms, nobody says why",
                 x->desc.watchdog_ms);
    char where[128] = "the end of its list";
    if (first->instruction < p->instruction_count)
        brim__program_where(where, sizeof where, p, first->instruction);
    return brim__fail(BRIM_REFUSED, "run.hung",
                      "a wait of more than %u ms in step %u: lane %u, warp %u, at %s, waits for %s "
                      "(%u) and sees 0x%x; %u lanes wait",
                      x->desc.watchdog_ms, first->epoch, at / RES_WARPS, at % RES_WARPS, where,
                      roles[first->role - 1], first->awaited, first->seen, lanes);
}

static brim_status report_hang(brim_executor *x)
{
    size_t count = (size_t)x->program->lane_count * RES_WARPS;
    brim__res_wait *waits;
    BRIM_CALLOC(x->ctx, waits, count);
    brim_status status = brim_device_read(waits, x->cuda->waits, 0, count * sizeof *waits);
    if (status == BRIM_OK)
        status = describe_hang(x, waits);
    brim__free(x->ctx, waits);
    return status;
}

brim_status brim__cuda_executor_wait(brim_executor *x)
{
    brim_status status = BRIM_OK;
    if (atomic_load(&x->running)) {
        status = brim__cuda_synchronize(x->desc.device, BRIM__CUDA_PROGRAMS);
        note_progress(x);
        atomic_store(&x->running, 0);
        if (status == BRIM_OK && x->cuda->mail->hung)
            status = report_hang(x);
        if (status == BRIM_OK && x->cuda->mail->done == 0)
            status = brim__fail(BRIM_SYSTEM, "run.nothing",
                                "the kernel ended without having done a step");
    }
    x->stats.instructions = (uint64_t)x->program->instruction_count * atomic_load(&x->epoch);
    return status;
}

void brim__cuda_executor_cancel(brim_executor *x)
{
    x->cuda->mail->cancel = 1;
}

/* ---- trace ---- */

static uint64_t on_timer(const brim__res_clock *k, uint64_t clock, uint64_t base)
{
    double rate = k->clock_end > k->clock_begin
                      ? (double)(k->timer_end - k->timer_begin) /
                            (double)(k->clock_end - k->clock_begin)
                      : 0;
    double ns = (double)(k->timer_begin - base) + (double)(int64_t)(clock - k->clock_begin) * rate;
    return ns > 0 ? (uint64_t)ns : 0;
}

static int by_time(const void *a, const void *b)
{
    const brim_trace_event *x = a, *y = b;
    return x->taken_ns < y->taken_ns ? -1 : x->taken_ns > y->taken_ns;
}

size_t brim__cuda_executor_trace(const brim_trace_event **out, brim_executor *x, uint32_t lane)
{
    struct brim__cuda_run *c = x->cuda;
    uint32_t capacity = x->desc.trace_events;
    brim__res_event *raw = NULL;
    brim__res_clock clocks[2];
    size_t count = 0;
    *out = c->trace;
    if (!c->events || !(raw = brim__calloc(x->ctx, capacity, sizeof *raw)))
        return 0;
    if (brim_device_read(&clocks[0], c->clocks, 0, sizeof clocks[0]) == BRIM_OK &&
        brim_device_read(&clocks[1], c->clocks, lane * sizeof clocks[0], sizeof clocks[0]) ==
            BRIM_OK &&
        brim_device_read(raw, c->events, (size_t)lane * capacity * sizeof *raw,
                         capacity * sizeof *raw) == BRIM_OK)
        for (uint32_t i = 0; i < capacity; i++) {
            const brim__res_event *e = &raw[i];
            if (!e->ended || e->instruction >= x->program->instruction_count)
                continue;
            uint64_t base = clocks[0].timer_begin - 1000000;
            uint64_t taken = on_timer(&clocks[1], e->taken, base);
            uint64_t started = on_timer(&clocks[1], e->started, base);
            uint64_t ended = on_timer(&clocks[1], e->ended, base);
            started = started < taken || started > ended ? taken : started;
            c->trace[count++] = (brim_trace_event){.epoch = c->start_epoch + e->epoch,
                                                   .instruction = e->instruction,
                                                   .lane = lane,
                                                   .taken_ns = taken,
                                                   .started_ns = started,
                                                   .ended_ns = ended < started ? started : ended};
        }
    brim__free(x->ctx, raw);
    qsort(c->trace, count, sizeof *c->trace, by_time);
    return count;
}
