// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/controller"
)

// TestLimitsHoldAcrossStarts has controllers one after the other, as of a process that fails again
// and again: they delete no more pods together than the limit allows one.
func TestLimitsHoldAcrossStarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		for i := range 9 {
			object := brokenObject(t)
			object.Name = fmt.Sprintf("web-%d", i)
			if err := store.Add(object); err != nil {
				t.Fatal(err)
			}
		}
		server := &unwilling{}
		o := options(repair.ModeDelete)
		o.Cluster, o.Informer, o.Limits.Disruptions = server, standing{store: store}, repair.Limit{Burst: 3, Every: time.Minute}
		start := time.Now()
		for _, lives := range []time.Duration{50 * time.Second, 50 * time.Second, 210 * time.Second} {
			c, err := controller.New(o)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), lives)
			if err := c.Run(ctx); err != nil {
				t.Error(err)
			}
			cancel()
		}
		if len(server.asked) != 3 || server.asked[0].Sub(start) < 160*time.Second {
			t.Errorf("deleted at %v after the start at %v, want 3 pods of the last controller, a minute apart", server.asked, start)
		}
	})
}
