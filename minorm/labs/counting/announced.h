// What the compiler calls with -fsanitize=thread: __tsan_read4(p) before it loads 4 bytes from p, and so on. The file
// before this one defines on_read(p, size) and on_write(p, size), in C++ in the namespace shim. It counts differently in
// __tsan_write_range, __tsan_vptr_read and __tsan_vptr_update, so these are there.

#define CALLED __attribute__((no_sanitize("thread"))) void
#define ANNOUNCED(size) \
    CALLED __tsan_read##size(void* p) { on_read(p, size); } \
    CALLED __tsan_write##size(void* p) { on_write(p, size); } \
    CALLED __tsan_unaligned_read##size(void* p) { on_read(p, size); } \
    CALLED __tsan_unaligned_write##size(void* p) { on_write(p, size); }

#ifdef __cplusplus
namespace shim { extern "C" {
#endif
ANNOUNCED(1)
ANNOUNCED(2)
ANNOUNCED(4)
ANNOUNCED(8)
ANNOUNCED(16)
CALLED __tsan_read_range(void* p, size_t size) { on_read(p, size); }
CALLED __tsan_func_entry(void* p) { (void)p; }
CALLED __tsan_func_exit(void) {}
CALLED __tsan_init(void) {}
#ifdef __cplusplus
}}
#endif
#undef ANNOUNCED
#undef CALLED
