// SPDX-License-Identifier: Apache-2.0

package backend_test

import (
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/backend"
)

// named is a dataplane that is also a predecessor.
type named struct{ backend.Successor }

func TestPredecessors(t *testing.T) {
	t.Parallel()
	if all, err := backend.Predecessors([]interception.Dataplane{named{}, named{}}); err != nil || len(all) != 2 {
		t.Errorf("got %d predecessors and %v, want 2", len(all), err)
	}
	stranger := struct{ interception.Dataplane }{}
	all, err := backend.Predecessors([]interception.Dataplane{named{}, stranger})
	if err == nil || !strings.Contains(err.Error(), "predecessor 1 is a struct") || all != nil {
		t.Errorf("got %v and %v, want an error about predecessor 1", all, err)
	}
}
