// SPDX-License-Identifier: Apache-2.0

package upkeep_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/meshcni/meshcni/internal/upkeep"
)

type greeting struct {
	directory string
	done      context.CancelFunc // called when all is right
}

func (g greeting) Directories() []string     { return []string{g.directory} }
func (g greeting) Concerns(path string) bool { return filepath.Base(path) == "greeting" }

func (g greeting) Pass(context.Context) upkeep.Result {
	path := filepath.Join(g.directory, "greeting")
	if content, err := os.ReadFile(path); err == nil && string(content) == "hello" {
		g.done()
		return upkeep.Result{}
	}
	if err := os.WriteFile(path, []byte("hello"), 0o600); err != nil {
		return upkeep.Result{Outcome: upkeep.Failed, Err: err}
	}
	return upkeep.Result{Outcome: upkeep.Wrote}
}

func (g greeting) Observe(r upkeep.Result, _ upkeep.Pace) { fmt.Println(r.Outcome) }

func Example() {
	directory, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(directory)
	ctx, done := context.WithCancel(context.Background())
	upkeep.New(upkeep.Options{}, greeting{directory, done}).Run(ctx)
	// Output:
	// wrote
	// right
}
