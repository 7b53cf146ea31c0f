#include "cli/cli.h"

int debug_tokens(int argc, char **argv) {
    (void)argc;
    return cli_failf("%s is not there yet", argv[0]);
}
int debug_text(int argc, char **argv) { return debug_tokens(argc, argv); }
