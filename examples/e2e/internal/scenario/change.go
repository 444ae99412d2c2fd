// SPDX-License-Identifier: Apache-2.0

package scenario

import "context"

// Change is [Suite.Install] that doesn't wait until the daemons are ready: some changes never get there.
func (s *Suite) Change(ctx context.Context, values Values) error {
	s.installation.forget()
	return s.install(ctx, values)
}
