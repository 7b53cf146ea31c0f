#include "cli/cli.h"

int debug_decode(int argc, char **argv) {
    (void)argc;
    return cli_failf("%s is not there yet", argv[0]);
}
int debug_encode(int argc, char **argv) { return debug_decode(argc, argv); }
