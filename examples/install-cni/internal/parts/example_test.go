// SPDX-License-Identifier: Apache-2.0

package parts_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
	"github.com/meshcni/meshcni/examples/install-cni/internal/parts"
)

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	attempts := 0
	part := parts.Part{Name: "greeter", Run: func(ctx context.Context, say func(string)) error {
		if attempts++; attempts == 1 {
			return errors.New("nobody is there")
		}
		say("")
		stop()
		<-ctx.Done()
		return nil
	}}
	state := health.NewState()
	parts.New(state, slog.New(slog.DiscardHandler), part).Run(ctx)
	c := state.Conditions()[0]
	fmt.Println(c.Part, "ready:", c.Ready, "restarts:", c.Restarts)
	// Output: greeter ready: true restarts: 1
}
