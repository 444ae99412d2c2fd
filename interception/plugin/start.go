// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// soon is longer than a command takes that nothing holds up.
const soon = 50 * time.Millisecond

// untilToldToEnd makes a context that ends with SIGTERM or SIGINT. A signal that comes earlier than soon ends the process at once, as SIGKILL
// does, which a command has to bear anyway: to catch signals takes three threads, and most commands are over before they need them.
func untilToldToEnd() context.Context {
	ctx, end := context.WithCancelCause(context.Background())
	time.AfterFunc(soon, func() {
		told, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
		defer stop()
		<-told.Done()
		end(context.Cause(told))
	})
	return ctx
}
