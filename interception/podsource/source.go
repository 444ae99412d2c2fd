// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"context"

	"github.com/meshcni/meshcni/interception"
)

// Source knows pods. An error that is [ErrNotFound], [ErrStalePod], [ErrRef] or [ErrNotReady] (errors.Is) says so, any other means that the
// source cannot tell now.
type Source interface {
	Pod(ctx context.Context, ref Ref) (interception.Pod, error)
}
