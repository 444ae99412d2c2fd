// SPDX-License-Identifier: Apache-2.0

package upkeep_test

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/meshcni/meshcni/internal/upkeep"
)

func ExampleWatches() {
	directory, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(directory)

	w := upkeep.NewWatches(directory)
	defer w.Close()
	missed, err := w.Ensure(time.Now())
	fmt.Println("look at everything:", missed, err)

	if err := os.WriteFile(filepath.Join(directory, "10-net.conflist"), nil, 0o600); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(filepath.Base((<-w.Events()).Name), "has changed")
	// Output:
	// look at everything: true <nil>
	// 10-net.conflist has changed
}
