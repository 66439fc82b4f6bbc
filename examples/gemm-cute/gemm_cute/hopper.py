"""A persistent matrix product for Hopper in CuTe DSL.

One warp copies tiles of both operands into a ring of stages (TMA); two warpgroups multiply them
(wgmma) and write their rows of the result through shared memory (TMA again). Blocks stay on their
multiprocessor and take one tile of the result after the other, in an order that keeps neighbours
close together. The blocks of a cluster compute tiles above each other, and share what they load of
`b`.
"""

import cutlass
from cutlass import Float32, Int32, Int64, cute, pipeline
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.cute.nvgpu.warp import StMatrix8x8x16bOp
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum
from cutlass.utils import hopper_helpers as hopper

GROUPS = 2
"""Warpgroups that multiply; each has 64 rows of a tile."""
ROWS = 64 * GROUPS
DEPTH = 64
"""How much of K a stage holds: 128 bytes."""
THREADS = 128 * GROUPS
STRIPE = 64
"""Columns that are written at once."""
BUFFERS = 2
LINE = 1024
"""What swizzled tiles are aligned to, in bytes."""
PRODUCER_REGISTERS, CONSUMER_REGISTERS = 40, 232


@cute.jit
def place(index, rows, columns, group):
    """The tile with a number: columns of `group` tiles, one beside the other."""
    across = group * columns
    first = index // across * group
    height = cutlass.min(rows - first, group)
    return first + index % across % height, index % across // height


@cute.kernel
def kernel(
    load_a,
    a,
    load_b,
    b,
    store,
    out,
    mma: cute.TiledMma,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
    layout_out: cute.ComposedLayout,
    rows: Int32,
    columns: Int32,
    steps: Int32,
    dtype: cutlass.Constexpr,
    width: cutlass.Constexpr,
    stages: cutlass.Constexpr,
    cluster: cutlass.Constexpr,
    group: cutlass.Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    if warp == 0:
        for atom in (load_a, load_b, store):
            cpasync.prefetch_descriptor(atom)

    memory = SmemAllocator()
    barriers = memory.allocate_array(Int64, 2 * stages)
    tiles_a = memory.allocate_tensor(dtype, layout_a.outer, LINE, layout_a.inner)
    tiles_b = memory.allocate_tensor(dtype, layout_b.outer, LINE, layout_b.inner)
    stripes = memory.allocate_tensor(dtype, layout_out.outer, LINE, layout_out.inner)
    stage_bytes = (ROWS + width) * DEPTH * dtype.width // 8
    ring = pipeline.PipelineTmaAsync.create(
        num_stages=stages,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, THREADS),
        tx_count=stage_bytes,
        barrier_storage=barriers,
        cta_layout_vmnk=cute.make_layout((1, cluster, 1, 1)),
        enable_multicast_signaling=True,
    )
    # Every tile with its coordinates behind it: (rows, columns, which row of tiles, which column).
    all_a = cute.local_tile(a, (ROWS, DEPTH), (None, None))
    all_b = cute.local_tile(b, (width, DEPTH), (None, None))
    all_out = cute.local_tile(out, (ROWS, STRIPE), (None, None))
    heights = cute.ceil_div(rows, cluster)
    first, step, work = block // cluster, blocks // cluster, heights * columns

    if warp >= 4 * GROUPS:
        cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
        if warp == 4 * GROUPS:
            to_a, from_a = cpasync.tma_partition(
                load_a,
                0,
                cute.make_layout(1),
                cute.group_modes(tiles_a, 0, 2),
                cute.group_modes(all_a, 0, 2),
            )
            to_b, from_b = cpasync.tma_partition(
                load_b,
                rank,
                cute.make_layout(cluster),
                cute.group_modes(tiles_b, 0, 2),
                cute.group_modes(all_b, 0, 2),
            )
            everybody = (1 << cluster) - 1
            state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, stages)
            for index in cutlass.range(first, work, step, unroll=1):
                high, column = place(index, heights, columns, group)
                row = high * cluster + rank
                for k in cutlass.range(steps, unroll=1):
                    ring.producer_acquire(state)
                    barrier = ring.producer_get_barrier(state)
                    cute.copy(
                        load_a,
                        from_a[(None, row, k)],
                        to_a[(None, state.index)],
                        tma_bar_ptr=barrier,
                    )
                    if cutlass.const_expr(cluster > 1):
                        cute.copy(
                            load_b,
                            from_b[(None, column, k)],
                            to_b[(None, state.index)],
                            tma_bar_ptr=barrier,
                            mcast_mask=cutlass.Int16(everybody),
                        )
                    else:
                        cute.copy(
                            load_b,
                            from_b[(None, column, k)],
                            to_b[(None, state.index)],
                            tma_bar_ptr=barrier,
                        )
                    state.advance()
            ring.producer_tail(state)
    else:
        cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
        own = mma.get_slice(cute.make_layout(GROUPS, stride=128)(warp // 4))
        given_a = mma.make_fragment_A(own.partition_A(tiles_a))
        given_b = mma.make_fragment_B(own.partition_B(tiles_b))
        total = cute.make_rmem_tensor(own.partition_shape_C((ROWS, width)), Float32)
        blocks_k = cute.size(given_a, mode=[2])

        to_shared = hopper.get_smem_store_op(LayoutEnum.ROW_MAJOR, dtype, Float32)
        pairs = cute.make_copy_atom(StMatrix8x8x16bOp(False, 4), dtype)
        tiled = cute.make_tiled_copy_S(to_shared, cute.make_tiled_copy_C_atom(pairs, mma))
        writer = tiled.get_slice(thread)
        written = writer.partition_D(stripes)
        results = writer.retile(total)
        stripe = cute.make_rmem_tensor(cute.shape(written)[:3], dtype)
        part = cute.size(stripe)
        stored, target = cpasync.tma_partition(
            store,
            0,
            cute.make_layout(1),
            cute.group_modes(stripes, 0, 2),
            cute.group_modes(all_out, 0, 2),
        )
        everyone = pipeline.NamedBarrier(barrier_id=1, num_threads=THREADS)
        # Copies that may still read their buffer when the next one is written to.
        pending = BUFFERS - 1 if width // STRIPE % BUFFERS == 0 else 0

        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, stages)
        done = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, stages)
        for index in cutlass.range(first, work, step, unroll=1):
            high, column = place(index, heights, columns, group)
            row = high * cluster + rank
            mma.set(warpgroup.Field.ACCUMULATE, False)
            ring.consumer_wait(state)
            warpgroup.fence()
            for at in cutlass.range_constexpr(blocks_k):
                where = (None, None, at, state.index)
                cute.gemm(mma, total, given_a[where], given_b[where], total)
                mma.set(warpgroup.Field.ACCUMULATE, True)
            warpgroup.commit_group()
            state.advance()
            for _ in cutlass.range(1, steps, unroll=1):
                ring.consumer_wait(state)
                warpgroup.fence()
                for at in cutlass.range_constexpr(blocks_k):
                    where = (None, None, at, state.index)
                    cute.gemm(mma, total, given_a[where], given_b[where], total)
                warpgroup.commit_group()
                # What the step before read is free when only this one is under way.
                warpgroup.wait_group(1)
                ring.consumer_release(done)
                done.advance()
                state.advance()
            warpgroup.wait_group(0)
            ring.consumer_release(done)
            done.advance()

            for at in cutlass.range_constexpr(width // STRIPE):
                buffer = at % BUFFERS
                for i in cutlass.range_constexpr(part):
                    stripe[i] = results[at * part + i].to(dtype)
                cute.copy(tiled, stripe, written[(None, None, None, buffer)])
                cute.arch.fence_proxy("async.shared", space="cta")
                everyone.arrive_and_wait()
                if warp == 0:
                    cute.copy(
                        store,
                        stored[(None, buffer)],
                        target[(None, row, column * (width // STRIPE) + at)],
                    )
                    cute.arch.cp_async_bulk_commit_group()
                    cute.arch.cp_async_bulk_wait_group(pending, read=True)
                everyone.arrive_and_wait()
        if warp == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def launch(
    a: cute.Tensor,
    b: cute.Tensor,
    out: cute.Tensor,
    multiprocessors: Int32,
    width: cutlass.Constexpr,
    stages: cutlass.Constexpr,
    cluster: cutlass.Constexpr,
    group: cutlass.Constexpr,
    stream,
):
    """`out = a @ b`: matrices whose rows lie one behind the other.

    Args:
        a: M x K.
        b: K x N.
        out: M x N.
        multiprocessors: how many the device has.
        width: columns of a tile: 64, 128, 256.
        stages: how many steps are loaded ahead.
        cluster: blocks that share what they load: 1 or 2.
        group: how many tiles above each other are computed before their neighbours.
        stream: where it runs.
    """
    b = cute.make_tensor(b.iterator, cute.select(b.layout, mode=[1, 0]))  # N x K
    kind_a, kind_b = LayoutEnum.from_tensor(a), LayoutEnum.from_tensor(b)
    tile = (ROWS, width, DEPTH)
    mma = hopper.make_trivial_tiled_mma(
        a.element_type,
        b.element_type,
        kind_a.sm90_mma_major_mode(),
        kind_b.sm90_mma_major_mode(),
        Float32,
        (GROUPS, 1, 1),
        (64, width),
    )
    layout_a = hopper.make_smem_layout_a(kind_a, tile, a.element_type, stages)
    layout_b = hopper.make_smem_layout_b(kind_b, tile, b.element_type, stages)
    layout_out = hopper.make_smem_layout_epi(
        out.element_type, LayoutEnum.ROW_MAJOR, (ROWS, STRIPE), BUFFERS
    )
    load_a, tensor_a = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SOp(), a, cute.slice_(layout_a, (None, None, 0)), (ROWS, DEPTH)
    )
    shared_load = (
        cpasync.CopyBulkTensorTileG2SMulticastOp()
        if cluster > 1
        else cpasync.CopyBulkTensorTileG2SOp()
    )
    load_b, tensor_b = cpasync.make_tiled_tma_atom(
        shared_load, b, cute.slice_(layout_b, (None, None, 0)), (width, DEPTH), cluster
    )
    store, tensor_out = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileS2GOp(),
        out,
        cute.slice_(layout_out, (None, None, 0)),
        (ROWS, STRIPE),
    )
    rows, columns = cute.ceil_div(a.shape[0], ROWS), cute.ceil_div(b.shape[0], width)
    clusters = cutlass.min(multiprocessors // cluster, cute.ceil_div(rows, cluster) * columns)
    kernel(
        load_a,
        tensor_a,
        load_b,
        tensor_b,
        store,
        tensor_out,
        mma,
        layout_a,
        layout_b,
        layout_out,
        rows,
        columns,
        cute.ceil_div(a.shape[1], DEPTH),
        a.element_type,
        width,
        stages,
        cluster,
        group,
    ).launch(
        grid=(clusters * cluster, 1, 1),
        block=(THREADS + 128, 1, 1),
        cluster=(cluster, 1, 1),
        stream=stream,
        min_blocks_per_mp=1,
    )
