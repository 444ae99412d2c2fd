// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// slowFinder finds nothing, and waits before it says so the first time.
type slowFinder struct {
	goOn   chan struct{}
	passes []int // for how many pods each was
}

func (f *slowFinder) FindAll(_ context.Context, pods []podnetns.Pod) []podnetns.Finding {
	if f.passes = append(f.passes, len(pods)); len(f.passes) == 1 {
		<-f.goOn
	}
	all := make([]podnetns.Finding, len(pods))
	for i, pod := range pods {
		all[i].Err = fmt.Errorf("pod %s: %w", pod.UID, os.ErrNotExist)
	}
	return all
}

func (*slowFinder) Verify(podnetns.Pod, *os.File) (*interception.Netns, error) {
	return nil, errors.ErrUnsupported
}

// TestSearchesAreShared has a hundred pods wait while the node is searched for one: they share the
// next pass, and each gets the answer that is its own.
func TestSearchesAreShared(t *testing.T) {
	t.Parallel()
	finder := &slowFinder{goOn: make(chan struct{})}
	s := &searches{finder: finder}
	var group sync.WaitGroup
	find := func(uid string) {
		group.Go(func() {
			_, err := s.find(t.Context(), podnetns.Pod{UID: uid})
			if want := "pod " + uid + ": "; !errors.Is(err, os.ErrNotExist) || err.Error() != want+os.ErrNotExist.Error() {
				t.Errorf("pod %s: %v", uid, err)
			}
		})
	}
	waiting := func() (waiting int, busy bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.waiting), s.busy
	}
	find("first")
	for n, busy := waiting(); n > 0 || !busy; n, busy = waiting() { // until it is searched for
		runtime.Gosched()
	}
	const others = 100
	for i := range others {
		find(fmt.Sprint(i))
	}
	for n, _ := waiting(); n < others; n, _ = waiting() {
		runtime.Gosched()
	}
	close(finder.goOn)
	group.Wait()
	if want := []int{1, others}; !slices.Equal(finder.passes, want) {
		t.Errorf("passes for %v pods, want %v", finder.passes, want)
	}
}
