// SPDX-License-Identifier: Apache-2.0

package installed_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/meshcni/meshcni/conflist/installer"
	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
	"github.com/meshcni/meshcni/examples/install-cni/internal/installed"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// greeting is a part that keeps one file.
type greeting struct {
	directory string
	done      context.CancelFunc // called when nothing is left to do
}

func (g greeting) path() string              { return filepath.Join(g.directory, "greeting") }
func (g greeting) Name() string              { return "greeting" }
func (g greeting) Directories() []string     { return []string{g.directory} }
func (g greeting) Concerns(path string) bool { return path == g.path() }

func (g greeting) Ensure(context.Context) (installer.Result, error) {
	changed, err := filesystem.Directory{Path: g.directory}.Write("greeting", []byte("hello\n"), filesystem.Options{})
	fmt.Println("written:", changed)
	if changed {
		return installer.Wrote, err
	}
	g.done()
	return installer.Right, err
}

func ExampleKeeper() {
	directory, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(directory)

	ctx, done := context.WithCancel(context.Background())
	state := health.NewState()
	installed.New(state, slog.New(slog.DiscardHandler), greeting{directory, done}).Run(ctx)
	fmt.Println("reasons not to be ready:", len(state.Reasons()))
	// Output:
	// written: true
	// written: false
	// reasons not to be ready: 0
}
