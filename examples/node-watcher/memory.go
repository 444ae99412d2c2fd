// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/footprint"
)

// countChanges counts each pod that is added, changed or removed as work.
func countChanges(informer cache.SharedIndexInformer, memory *footprint.Trimmer) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { memory.Worked() },
		UpdateFunc: func(any, any) { memory.Worked() },
		DeleteFunc: func(any) { memory.Worked() },
	})
	if err != nil {
		return fmt.Errorf("notice changes of the node's pods: %w", err)
	}
	return nil
}

// asked counts requests for a pod as work.
type asked struct {
	podsource.Source
	memory *footprint.Trimmer
}

func (a asked) Pod(ctx context.Context, ref podsource.Ref) (interception.Pod, error) {
	a.memory.Worked()
	return a.Source.Pod(ctx, ref)
}
