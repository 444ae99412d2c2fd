// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// soon is longer than a command takes that nothing holds up.
const soon = 50 * time.Millisecond

// untilToldToEnd makes a context that ends with SIGTERM or SIGINT. Whoever is told so earlier than soon ends at once, as by SIGKILL, which a
// command has to bear anyway: to catch signals takes three threads, which most commands have no use for.
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

// growStack makes room on the stack for what an ADD has there, while there is next to nothing on it that has to be moved. It need not be deep
// for that: the room is made when a function is entered that could need it, and none of it is touched.
//
//go:noinline
func growStack(deep bool) {
	if deep {
		var room [20 << 10]byte
		runtime.KeepAlive(&room)
	}
}
