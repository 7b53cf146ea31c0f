# hearth: `make` builds build/hearth and libhearth, `make run` serves the default model,
# `make test` runs the tests. `make help` lists the rest.

BUILD    ?= build
PREFIX   ?= /usr/local
DESTDIR  ?=
CC       ?= cc
VERSION  := $(shell sed -n 's/^\#define HEARTH_VERSION "\(.*\)"/\1/p' include/hearth.h)
ARCH     := $(shell ($(CC) -dumpmachine 2>/dev/null || uname -m) | cut -d- -f1)
PARALLEL := -j$(shell nproc 2>/dev/null || echo 2)

LIBS_PC  := jansson libpcre2-8 libutf8proc libxxhash libsodium
OPT      ?= -O3 -g
WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wno-sign-compare
# Products and sums are rounded one by one, so that results do not depend on the compiler's mood.
CFLAGS   += -std=c11 -D_GNU_SOURCE $(OPT) $(WARN) $(SANITIZE) -ffp-contract=off -fvisibility=hidden -fPIC -pthread -Iinclude -Isrc -Itests -MMD -MP
LDFLAGS  += $(SANITIZE) -pthread
ifneq ($(filter-out help deps clean,$(or $(MAKECMDGOALS),all)),)
PC_CFLAGS = $(shell pkg-config --cflags $(LIBS_PC) 2>/dev/null)
PC_LIBS   = $(shell pkg-config --libs $(LIBS_PC) 2>/dev/null)
endif
# Who builds without what is needed gets a sentence and not the compiler's; run and test install it first.
ifneq ($(filter-out help deps clean run test asan ubsan tsan fuzz,$(or $(MAKECMDGOALS),all)),)
ifeq ($(shell pkg-config --exists $(LIBS_PC) libedit libcurl libmicrohttpd 2>/dev/null && echo found),)
$(error hearth needs development files that are not here: "make deps" installs them)
endif
endif
LDLIBS    = $(PC_LIBS) -lm
# Line editing, downloads and HTTP, for the program only: the library has no server in it.
CLI_LIBS := -ledit -lcurl
HTTP_LIBS := -lmicrohttpd

# Every file is compiled on every build of its architecture; the suffix of its name says which instructions it may use.
ISA_avx2   := -mavx2 -mfma -mf16c
ISA_avx512 := -march=x86-64-v4 -mavx512vnni -mavx512bf16 -mavx512vbmi
ISA_amx    := $(ISA_avx512) -mamx-tile -mamx-int8 -mamx-bf16
ISA_neon   := -march=armv8.2-a+dotprod+fp16
ifeq ($(ARCH),x86_64)
SKIP := %_neon.c
else ifeq ($(ARCH),aarch64)
SKIP := %_avx2.c %_avx512.c %_amx.c
else
SKIP := %_avx2.c %_avx512.c %_amx.c %_neon.c
endif

SRC      := $(filter-out $(SKIP),$(wildcard src/*/*.c))
LIB_SRC  := $(filter-out src/cli/% src/http/% src/api/%,$(SRC))
SERVER_SRC := $(filter src/http/% src/api/%,$(SRC))
CLI_SRC  := $(filter src/cli/%,$(SRC))
LIB_OBJ  := $(LIB_SRC:%.c=$(BUILD)/%.o)
SERVER_OBJ := $(SERVER_SRC:%.c=$(BUILD)/%.o)
CLI_OBJ  := $(CLI_SRC:%.c=$(BUILD)/%.o)
TEST_SRC := $(wildcard tests/unit/test_*.c tests/conformance/test_*.c)
TESTS    := $(TEST_SRC:%.c=$(BUILD)/%)

.PHONY: all run test clients fuzz soak bench-server asan ubsan tsan install deps clean help tests
all: $(BUILD)/hearth $(BUILD)/libhearth.a $(BUILD)/libhearth.so $(BUILD)/hearth.pc

help:
	@echo 'make            build build/hearth and libhearth'
	@echo 'make run        install what is missing, build, serve the default model and its page'
	@echo 'make test       install what is missing, build, run the tests'
	@echo 'make asan       the tests under the address sanitizer (ubsan, tsan: undefined, thread)'
	@echo 'make clients    real API clients and a browser against the server (needs npm; Chromium if there)'
	@echo 'make fuzz       each fuzz target for FUZZ_SECONDS (now $(FUZZ_SECONDS)); needs clang and its fuzzer library'
	@echo 'make soak       many clients, good and bad, for SOAK_SECONDS (now $(SOAK_SECONDS)) against a server; then again with kill -9'
	@echo 'make bench-server  build/bench-server: what the users of a running server feel (--help tells more)'
	@echo 'make install    to PREFIX (now $(PREFIX)), below DESTDIR'
	@echo 'make deps       only install the Debian packages that are missing'
	@echo 'make clean      delete $(BUILD)'

$(BUILD)/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(PC_CFLAGS) $(ISA_$(lastword $(subst _, ,$(basename $(notdir $<))))) -c $< -o $@

# The page is built into the program.
$(BUILD)/src/api/page.o: $(wildcard web/*)

$(BUILD)/hearth: $(CLI_OBJ) $(SERVER_OBJ) $(LIB_OBJ)
	$(CC) $(LDFLAGS) $^ $(LDLIBS) $(CLI_LIBS) $(HTTP_LIBS) -o $@

# One relocatable object whose hidden symbols are made local: only hearth_* can collide with a program's names.
$(BUILD)/libhearth.a: $(LIB_OBJ)
	ld -r $^ -o $(BUILD)/libhearth.o
	objcopy --localize-hidden $(BUILD)/libhearth.o
	@rm -f $@
	ar rcs $@ $(BUILD)/libhearth.o

$(BUILD)/libhearth.so: $(LIB_OBJ)
	$(CC) $(LDFLAGS) -shared -Wl,-soname,libhearth.so.0 $^ $(LDLIBS) -o $@
	@ln -sf libhearth.so $(BUILD)/libhearth.so.0

# The prefix may differ between building and installing, so it is filled in anew then.
PC = sed -e 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|; s|@REQUIRES@|$(LIBS_PC)|' tools/hearth.pc.in
$(BUILD)/hearth.pc: tools/hearth.pc.in Makefile include/hearth.h
	@mkdir -p $(@D)
	$(PC) > $@

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(BUILD)/tests/tools/support.o $(SERVER_OBJ) $(LIB_OBJ)
	$(CC) $(LDFLAGS) $^ $(LDLIBS) $(HTTP_LIBS) -lcmocka -o $@

# It has clients in common with the soak test.
$(BUILD)/tests/unit/test_server_kill: $(BUILD)/tests/soak/client.o $(BUILD)/tests/soak/server.o $(BUILD)/tests/soak/talker.o

tests: $(TESTS)

deps:
	@tools/deps.sh

run: deps
	@$(MAKE) --no-print-directory -s $(PARALLEL) $(BUILD)/hearth
	@$(BUILD)/hearth serve

test: deps
	@$(MAKE) --no-print-directory -s $(PARALLEL) all tests
	@BUILD=$(BUILD) tests/run.sh

clients: $(BUILD)/hearth
	@cd tests/clients && npm install --silent --no-audit --no-fund && npm test --silent

# Every object is built again with clang, for its coverage counters; but the kernels, which read no input and take minutes each that way.
FUZZ_SECONDS ?= 60
ifeq ($(BUILD),build/fuzz)
$(BUILD)/src/kernels/%.o: override SANITIZE :=
endif
FUZZERS  := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
$(BUILD)/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(BUILD)/tests/tools/support.o $(SERVER_OBJ) $(LIB_OBJ)
	$(CC) $(LDFLAGS) -fsanitize=fuzzer $^ $(LDLIBS) $(HTTP_LIBS) -lcmocka -o $@
fuzz:
	@$(MAKE) --no-print-directory -s $(PARALLEL) BUILD=build/fuzz CC=clang OPT='-O1 -g' SANITIZE='-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all' \
		WARN=-Werror=incompatible-pointer-types $(FUZZERS:%=build/fuzz/%)
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tests/fuzz/run.sh $(FUZZERS:%=build/fuzz/%)

SOAK_SECONDS ?= 60
SOAK_CLIENTS ?= 64
SOAK_KILLS   ?= 6
SOAK_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/soak/*.c))
$(BUILD)/soak: $(SOAK_OBJ) $(LIB_OBJ)
	$(CC) $(LDFLAGS) $^ $(LDLIBS) -o $@
# First on a store of its own, then with kill -9 and a restart SOAK_KILLS times on another.
soak: $(BUILD)/hearth $(BUILD)/soak
	@rm -rf $(BUILD)/soak-store
	@$(BUILD)/soak $(BUILD)/hearth $(SOAK_SECONDS) $(SOAK_CLIENTS) --store-dir $(BUILD)/soak-store --kv-memory 64M
	@rm -rf $(BUILD)/soak-store
	@$(BUILD)/soak $(BUILD)/hearth $(SOAK_SECONDS) $(SOAK_CLIENTS) --kills $(SOAK_KILLS)

$(BUILD)/bench-server: $(BUILD)/bench/server.o $(BUILD)/bench/chat.o $(BUILD)/src/cli/options.o $(LIB_OBJ)
	$(CC) $(LDFLAGS) $^ $(LDLIBS) -lcurl -o $@
bench-server: $(BUILD)/bench-server

asan:
	@$(MAKE) --no-print-directory test BUILD=build/asan OPT='-O1 -g' SANITIZE='-fsanitize=address -fno-omit-frame-pointer'
ubsan:
	@$(MAKE) --no-print-directory test BUILD=build/ubsan OPT='-O1 -g' SANITIZE='-fsanitize=undefined -fno-sanitize-recover=all'
tsan:
	@$(MAKE) --no-print-directory test BUILD=build/tsan OPT='-O1 -g' SANITIZE='-fsanitize=thread'

install: all
	install -Dm755 $(BUILD)/hearth $(DESTDIR)$(PREFIX)/bin/hearth
	install -Dm644 include/hearth.h $(DESTDIR)$(PREFIX)/include/hearth.h
	install -Dm644 $(BUILD)/libhearth.a $(DESTDIR)$(PREFIX)/lib/libhearth.a
	install -Dm755 $(BUILD)/libhearth.so $(DESTDIR)$(PREFIX)/lib/libhearth.so.$(VERSION)
	ln -sf libhearth.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/libhearth.so.0
	ln -sf libhearth.so.0 $(DESTDIR)$(PREFIX)/lib/libhearth.so
	@mkdir -p $(DESTDIR)$(PREFIX)/lib/pkgconfig
	$(PC) > $(DESTDIR)$(PREFIX)/lib/pkgconfig/hearth.pc
	for k in user system; do install -Dm644 tools/systemd/hearth.socket $(DESTDIR)$(PREFIX)/lib/systemd/$$k/hearth.socket; done
	sed -e 's|@PREFIX@|$(PREFIX)|' tools/systemd/hearth.service.in > $(DESTDIR)$(PREFIX)/lib/systemd/user/hearth.service
	sed -e 's|@PREFIX@|$(PREFIX)|' tools/systemd/hearth-system.service.in > $(DESTDIR)$(PREFIX)/lib/systemd/system/hearth.service
	for m in models/*.gguf; do install -Dm644 $$m $(DESTDIR)$(PREFIX)/share/hearth/$$m; done

clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
.SECONDARY:
